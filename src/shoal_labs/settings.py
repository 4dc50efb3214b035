"""The settings of every lab: the flags of `shoal lab`, what a plan is made from, and the command that a page prints.

Without torch, so that `shoal lab --help` answers at once.
"""

import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from shoal.kit.settings import AtLeast, Flags, Matching


@dataclass(frozen=True)
class LabSettings(Flags):
    """What every lab takes."""

    quick: bool = False
    """Use fewer steps and samples: one to five minutes on two cores."""
    lang: Literal["en", "zh"] = "en"
    """Language of the report."""
    out: Path | None = None
    """Folder of the report (default reports/lab…)."""
    seed: int = 0
    """First seed."""
    quiet: bool = False
    """Print only the paths of the report."""
    open: bool = False
    """Open the report in a browser."""

    @property
    def variant(self) -> str:
        """What distinguishes this report's folder name from others of the same lab, such as the data set."""
        return ""

    def given(self, name: str) -> Any:
        """A setting that not every lab has; None where it has not, or where nothing was given."""
        return getattr(self, name, None)


@dataclass(frozen=True)
class SolutionSettings(LabSettings):
    """What labs with a hand-out take."""

    solution: Path | None = None
    """Folder with your own solution: the report is then about your code (default: Shoal's)."""


@dataclass(frozen=True)
class DataSettings(LabSettings):
    """What labs that train take."""

    runs: Path | None = None
    """Folder of an earlier report: reuse its finished runs, and train only the rest."""
    data: str = "digits"
    """digits, mnist or fashion-mnist."""
    data_dir: Path | None = None
    """Folder with the files of mnist or fashion-mnist."""


@dataclass(frozen=True)
class Lab1Settings(DataSettings, SolutionSettings):
    """Lab 1 trains on whole data sets."""

    @property
    def variant(self) -> str:
        """The data set."""
        return self.data


@dataclass(frozen=True)
class SampleSettings(DataSettings):
    """The other labs' plans limit the number of samples."""

    samples: Annotated[int, AtLeast(10)] | None = None
    """Train on this many samples (default: as many as the lab's plan has)."""


@dataclass(frozen=True)
class WorkersSettings(SampleSettings):
    """Labs with one number of workers."""

    workers: int = 2
    """Number of workers that train together."""

    @property
    def variant(self) -> str:
        """The number of workers."""
        return f"{self.workers}-workers"


@dataclass(frozen=True)
class DeviceSettings(SampleSettings, SolutionSettings):
    """Labs that can train on a GPU."""

    device: Literal["cpu", "cuda"] = "cpu"
    """Train on the CPU or on the GPU; times of communication are then CUDA events."""


@dataclass(frozen=True)
class Lab2Settings(DeviceSettings, WorkersSettings):
    """Lab 2 compares ways to communicate."""


@dataclass(frozen=True)
class Lab3Settings(DeviceSettings):
    """Lab 3 has several numbers of workers."""

    workers: Annotated[str, Matching(".*", "2,4", "LIST")] = "2,4"
    """Numbers of workers to compare."""

    @property
    def variant(self) -> str:
        """The numbers of workers."""
        return f"{self.workers.replace(',', '-')}-workers"


@dataclass(frozen=True)
class Lab4Settings(WorkersSettings, SolutionSettings):
    """Lab 4 divides one model."""

    workers: int = 3
    """Number of workers among which the model is divided, 2 to 4."""


@dataclass(frozen=True)
class OptimiseSettings(WorkersSettings):
    """The lab on optimisation; its part on memory has generated data."""

    workers: int = 2
    """Number of workers that exchange gradients; the part on slow workers has at least 3."""


SETTINGS: dict[str, type[LabSettings]] = {
    "1": Lab1Settings,
    "2": Lab2Settings,
    "3": Lab3Settings,
    "4": Lab4Settings,
    "autograd": SolutionSettings,
    "optimise": OptimiseSettings,
}
"""By lab."""
NOT_PRINTED = ("help", "out", "quiet", "open")
"""Not in the command that a page prints: --out is in use now."""


def command_of(lab: str, settings: LabSettings) -> str:
    """The command line that makes the same report.

    >>> command_of("autograd", SolutionSettings(quick=True, out=Path("here")))
    'shoal lab autograd --quick --lang en --seed 0'
    >>> command_of("1", Lab1Settings(runs=Path("reports/a b/runs")))
    "shoal lab 1 --lang en --seed 0 --runs 'reports/a b/runs'"
    >>> command_of("3", Lab3Settings(data="mnist", samples=6000))
    'shoal lab 3 --lang en --seed 0 --data mnist --samples 6000'
    """
    words = ["shoal", "lab", lab]
    for field in fields(settings):
        value, flag = getattr(settings, field.name), f"--{field.name.replace('_', '-')}"
        if field.name not in NOT_PRINTED and (value != field.default or field.name in ("lang", "seed")):
            words += [flag] if value is True else [flag, str(value)]
    return shlex.join(words)


def in_language(lang: str) -> tuple[str, ...]:
    """The flag that keeps a next command in this language.

    >>> in_language("zh"), in_language("en")
    (('--lang', 'zh'), ())
    """
    return ("--lang", lang) if lang != "en" else ()
