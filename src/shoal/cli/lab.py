"""`shoal lab`: run a lab and get its report, or start your own solution and check it."""

import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flag
from shoal.config.kinds import check, parse
from shoal.labs.catalogue import LABS, lab_of

LANG = Flag("--lang", "Language of the report.", default="en", value="en|zh")
FLAGS = {
    flag.name: flag
    for flag in (
        Flag("--quick", "Use fewer steps, seeds and samples: one or two minutes.", bool, False),
        LANG,
        Flag("--out", "Folder of the report (default reports/lab…).", value="DIR"),
        Flag("--seed", "First seed (default 0).", int),
        Flag("--quiet", "Print only the paths of the report.", bool, False),
        Flag("--data", "digits, mnist or fashion-mnist (default digits).", value="NAME"),
        Flag("--data-dir", "Folder with the files of mnist or fashion-mnist.", value="DIR"),
        Flag("--workers", "Number of workers (default 2); for lab 3 a list (default 2,4).", value="N"),
        Flag(
            "--runs",
            "Reuse the finished runs in this runs/ folder of an earlier report, train the rest.",
            value="DIR",
        ),
    )
}
FOR_ALL = ("--quick", "--lang", "--out", "--seed", "--quiet")


def _start(given: Given) -> int:
    """Write the files of a lab that the student completes."""
    from shoal.labs.start import start

    for path in start(given.words[0], Path(given["--out"]), given["--lang"]):
        text.show(str(path))
    return 0


def _check(given: Given) -> int:
    """Print a line for every task and a sentence for every fault; 1 unless everything is right."""
    from shoal.labs.check.solution import check
    from shoal.labs.words import load_words

    name, folder = (*given.words, ".")[:2]
    sentences = load_words(lab_of(name).package, given["--lang"])
    right, tried = 0, 0
    try:
        for verdict in check(name, Path(folder)):
            text.show(
                f"{sentences(f'check.{verdict.word}')}  {verdict.path.name}: {', '.join(verdict.tasks)}"
            )
            for fault in verdict.faults:
                text.show(f"  {sentences(f'check.{fault.key}', **fault.values)}")
            right, tried = right + (verdict.word == "right"), tried + 1
    except KeyboardInterrupt:
        return 130
    text.show(sentences("check.summary", right=right, all=tried, folder=Path(folder)))
    return 0 if right == tried else 1


def _run(given: Given) -> int:
    """Run a lab and write its report; 130 after Ctrl-C."""
    from shoal.labs.terminal import aligned
    from shoal.labs.watch import watch_for
    from shoal.labs.words import load_words

    name = given.command.name.removeprefix("lab ")
    lab: Any = import_module(f"{lab_of(name).package}.lab")
    settings = lab.Settings(**_settings(lab.Settings, given))
    words = load_words(lab.PACKAGE, settings.lang)
    folder = lab.folder_for(settings)
    quiet: bool = given["--quiet"]
    try:
        with watch_for(sys.stdout, quiet) as watch:
            outcome = lab.run(settings, folder, watch)
    except KeyboardInterrupt:
        text.warn(words("progress.stopped", folder=folder / "runs"))
        return 130
    if not quiet:
        text.show("\n" + aligned(outcome.header, outcome.rows, frozenset(range(1, len(outcome.header)))))
        text.show(f"\n{text.bold(words('progress.findings'))}")
        text.show(aligned(("", ""), outcome.findings).lstrip("\n"))
        text.show()
    text.show(str(folder / "report.html"))
    text.show(str(folder / "report.md"))
    return 0


def _settings(schema: Any, given: Given) -> dict[str, Any]:
    """What the user gave, as fields of the lab's settings; the lab has the defaults."""
    kinds = {field.name: field.type for field in fields(schema)}
    settings: dict[str, Any] = {}
    for flag in given.present - {"--quiet"}:
        field, value = flag.removeprefix("--").replace("-", "_"), given[flag]
        if kinds[field] is int and isinstance(value, str):  # --workers of lab 2; lab 3 takes a list
            value = check(int, parse(int, value), flag)
        settings[field] = value
    return settings


def _lab(name: str) -> Command:
    flags = tuple(flag for flag in FLAGS.values() if flag.name in (*FOR_ALL, *LABS[name].flags))
    return Command(f"lab {name}", LABS[name].summary, _run, flags=flags)


COMMAND = Command(
    "lab",
    "Run a lab and get its report, or start your own solution and check it.",
    commands={
        **{name: _lab(name) for name in LABS},
        "start": Command(
            "lab start",
            "Write the files of a lab that you complete.",
            _start,
            words="LAB",
            flags=(Flag("--out", "Folder to write them into.", default=".", value="DIR"), LANG),
        ),
        "check": Command(
            "lab check", "Check your solution of a lab.", _check, words="LAB [DIR]", flags=(LANG,)
        ),
    },
    kind_of_command="lab",
    details=lambda: ("Start with:  shoal lab 1 --quick",),
)
