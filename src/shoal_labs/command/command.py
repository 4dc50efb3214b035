"""`shoal lab`: run a lab and get its report, or start your own solution and check it."""

import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from shoal.cli import text
from shoal.cli.browser import open_page
from shoal.cli.command import Command, CommandGroup, Given
from shoal.cli.interrupts import exit_code_of
from shoal.config.flags import Flags
from shoal.config.kinds import AtLeast, Matching
from shoal_labs.catalogue import LABS, lab_of
from shoal_labs.command.check import CHECK


@dataclass(frozen=True)
class LabFlags(Flags):
    """What every lab takes."""

    quick: bool = False
    """Use fewer steps and samples: a minute for lab 1 and autograd, 2 to 7 for lab 4, 4 to 21 for the others."""
    lang: Literal["en", "zh"] = "en"
    """Language of the report."""
    out: Path | None = None
    """Folder of the report (default reports/lab…)."""
    seed: int | None = None
    """First seed (default 0)."""
    quiet: bool = False
    """Print only the paths of the report."""
    open: bool = False
    """Open the report in a browser."""


@dataclass(frozen=True)
class SolutionFlags(LabFlags):
    """What labs with a hand-out take."""

    solution: Path | None = None
    """Folder with your own solution: the report is then about your code (default: Shoal's)."""


@dataclass(frozen=True)
class RerunFlags(LabFlags):
    """What labs that train take."""

    runs: Path | None = None
    """Folder of an earlier report: reuse its finished runs, and train only the rest."""


@dataclass(frozen=True)
class DataFlags(RerunFlags):
    """Labs that train have several data sets."""

    data: str | None = None
    """digits, mnist or fashion-mnist (default digits)."""
    data_dir: Path | None = None
    """Folder with the files of mnist or fashion-mnist."""


@dataclass(frozen=True)
class Lab1Flags(DataFlags, SolutionFlags):
    """Lab 1 trains on whole data sets."""


@dataclass(frozen=True)
class SampleFlags(DataFlags):
    """The other labs' plans limit the number of samples."""

    samples: Annotated[int, AtLeast(10)] | None = None
    """Train on this many samples (default: as many as the lab's plan has)."""


@dataclass(frozen=True)
class DeviceFlags(SampleFlags, SolutionFlags):
    """Labs that can train on a GPU."""

    device: Literal["cpu", "cuda"] | None = None
    """Train on the CPU or on the GPU; times of communication are then CUDA events (default cpu)."""


@dataclass(frozen=True)
class Lab2Flags(DeviceFlags):
    """Lab 2 has one number of workers."""

    workers: int | None = None
    """Number of workers that train together (default 2)."""


@dataclass(frozen=True)
class Lab3Flags(DeviceFlags):
    """Lab 3 has several numbers of workers."""

    workers: Annotated[str, Matching(".*", "2,4", "LIST")] | None = None
    """Numbers of workers to compare (default 2,4)."""


@dataclass(frozen=True)
class Lab4Flags(SampleFlags, SolutionFlags):
    """Lab 4 divides one model."""

    workers: int | None = None
    """Number of workers among which the model is divided, 2 to 4 (default 3)."""


@dataclass(frozen=True)
class OptimiseFlags(SampleFlags):
    """The lab on optimisation has one number of workers; its part on memory has generated data."""

    workers: int | None = None
    """Number of workers that exchange gradients (default 2); the part on slow workers has at least 3."""


@dataclass(frozen=True)
class StartFlags(Flags):
    """Where the files go."""

    lang: Literal["en", "zh"] = "en"
    """Language of the files."""
    out: Path = Path()
    """Folder to write them into."""


FLAGS: dict[str, type[LabFlags]] = {
    "1": Lab1Flags,
    "2": Lab2Flags,
    "3": Lab3Flags,
    "4": Lab4Flags,
    "autograd": SolutionFlags,
    "optimise": OptimiseFlags,
}


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
    text.next_step("shoal", "lab", "check", number, *where, first=edit)
    return 0


def _run(given: Given[LabFlags]) -> int:
    """Run a lab and write its report."""
    from shoal.compare.earlier import to_continue_from
    from shoal.compare.watch import watch_for
    from shoal.report.plain_tables import aligned
    from shoal.training.stop import Series
    from shoal_labs.frame import folder_for, load_lab, run_lab
    from shoal_labs.settings import command_of

    chosen = _settings(given.flags)
    lab = load_lab(given.command.name.removeprefix("lab "), chosen.get("solution", ""))
    settings = lab.settings(**chosen)
    words = lab.words(settings.lang)
    folder = folder_for(lab, settings)
    quiet = given.flags.quiet
    try:
        with Series(), watch_for(sys.stdout, quiet) as watch:
            result = run_lab(lab, settings, folder, watch)
    except KeyboardInterrupt as interrupt:
        finished = to_continue_from(folder / "runs", settings.earlier_runs())
        again = command_of(lab.number, replace(settings, runs=str(finished or settings.runs)))
        text.warn(words("progress.stopped", command=again))
        return exit_code_of(interrupt)
    if not quiet:
        header = result.table.header
        text.show("\n" + aligned(header, result.table.rows, frozenset(range(1, len(header)))))
        text.show(f"\n{text.bold(words('progress.findings'))}")
        text.show(aligned(("", ""), result.findings).lstrip("\n"))
        text.show()
    text.show(str(folder / "report.html"))
    text.show(str(folder / "report.md"))
    if given.flags.open:
        open_page(folder / "report.html")
    if not quiet and lab_of(lab.number).hand_out and not chosen.get("solution"):
        text.next_step("shoal", "lab", "start", lab.number)
    return 0


def _settings(flags: LabFlags) -> dict[str, Any]:
    """What the user gave, as fields of the lab's settings; the lab has the defaults."""
    given = {field.name: getattr(flags, field.name) for field in fields(flags)}
    return {
        key: str(value) if isinstance(value, Path) else value
        for key, value in given.items()
        if key not in ("help", "quiet", "open") and value is not None
    }


COMMAND = CommandGroup(
    "lab",
    "Run a lab and get its report, or start your own solution and check it.",
    {
        **{name: Command(f"lab {name}", _run, FLAGS[name], summary=LABS[name].summary) for name in LABS},
        "start": Command("lab start", _start, StartFlags, words="LAB"),
        "check": CHECK,
    },
    kind="lab",
    more="Start with:  shoal lab 1 --quick",
)
