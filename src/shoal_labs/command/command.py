"""`shoal lab`: run a lab and get its report, or start your own solution and check it."""

import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from shoal.kit.command import Command, CommandGroup, Given, exit_code_of, open_page, text
from shoal.kit.settings import Flags
from shoal_labs.catalogue import LABS, lab_of
from shoal_labs.command.check import CHECK
from shoal_labs.settings import SETTINGS, LabSettings, command_of, in_language


@dataclass(frozen=True)
class StartFlags(Flags):
    """Where the files go."""

    lang: Literal["en", "zh"] = "en"
    """Language of the files."""
    out: Path = Path()
    """Folder to write them into."""


def _start(given: Given[StartFlags]) -> int:
    """Write the files of a lab that you complete."""
    from shoal_labs.handout.start import first_task, start
    from shoal_labs.words import load_words

    number, folder = given.words[0], given.flags.out
    for path in start(number, folder, given.flags.lang):
        text.show(str(path))
    words = load_words(lab_of(number).package, given.flags.lang)
    where = [] if folder == Path() else [folder]
    edit = words("next.edit", file=folder / first_task(number))
    text.next_step("shoal", "lab", "check", number, *where, *in_language(given.flags.lang), first=edit)
    return 0


def _run(given: Given[LabSettings]) -> int:
    """Run a lab and write its report."""
    from shoal.kit.page import aligned, free_beside
    from shoal.kit.runs import to_continue_from, watch_for
    from shoal.kit.training import Series
    from shoal_labs.frame import earlier_of, folder_for, load_lab, run_lab

    settings = given.flags
    lab = load_lab(given.command.name.removeprefix("lab "), bool(settings.given("solution")))
    words = lab.words(settings.lang)
    folder = folder_for(lab, settings)
    quiet = settings.quiet
    try:
        with Series(), watch_for(sys.stdout, quiet) as watch:
            result = run_lab(lab, settings, folder, watch)
    except KeyboardInterrupt as interrupt:
        finished = to_continue_from(folder / "runs", earlier_of(settings))
        runs = {"runs": finished or settings.given("runs")} if hasattr(settings, "runs") else {}
        again = command_of(lab.number, replace(settings, **runs))
        where = f" --out {shlex.quote(str(free_beside(folder)))}" if settings.out else ""
        text.warn(words("progress.stopped", command=again + where))
        return exit_code_of(interrupt)
    if not quiet:
        header = result.table.header
        text.show("\n" + aligned(header, result.table.rows, frozenset(range(1, len(header)))))
        text.show(f"\n{text.bold(words('progress.findings'))}")
        text.show(aligned(("", ""), result.findings).lstrip("\n"))
        text.show()
    text.show(str(folder / "report.html"))
    text.show(str(folder / "report.md"))
    if settings.open:
        open_page(folder / "report.html")
    if not quiet and lab_of(lab.number).hand_out and not settings.given("solution"):
        text.next_step("shoal", "lab", "start", lab.number, *in_language(settings.lang))
    return 0


COMMAND = CommandGroup(
    "lab",
    "Run a lab and get its report, or start your own solution and check it.",
    {
        **{name: Command(f"lab {name}", _run, SETTINGS[name], summary=LABS[name].summary) for name in LABS},
        "start": Command("lab start", _start, StartFlags, words="LAB"),
        "check": CHECK,
    },
    kind="lab",
    more="Start with:  shoal lab 1 --quick",
)
