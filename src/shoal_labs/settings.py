"""The settings that all labs share, and the command that a report prints."""

import shlex
from dataclasses import dataclass, fields
from pathlib import Path

from shoal.compare.earlier import earlier_runs


@dataclass(frozen=True)
class LabSettings:
    """What the user can set in every lab; a lab adds fields of its own in a subclass."""

    quick: bool = False
    lang: str = "en"
    out: str = ""
    seed: int = 0
    runs: str = ""
    """The folder of an earlier report, or its runs/ folder: runs that were finished there are not trained again."""
    solution: str = ""
    """The folder of a student's solution: the report is then about that code."""
    data: str = ""
    """The data set; empty: the lab's own."""
    data_dir: str = ""
    """Folder with its files."""
    samples: int | None = None
    """Training samples; by default as many as the lab's plan has."""
    device: str = ""
    """cpu or cuda; empty: cpu."""

    @property
    def variant(self) -> str:
        """What distinguishes this report's folder name from others of the same lab, such as the data set."""
        return ""

    def earlier_runs(self) -> Path | None:
        """The runs/ folder of an earlier report, if that or the report's own folder was given."""
        return earlier_runs(self.runs) if self.runs else None


@dataclass(frozen=True)
class WorkersSettings(LabSettings):
    """The settings of a lab with one number of workers, which is in the folder's name."""

    workers: int = 2

    @property
    def variant(self) -> str:
        """The number of workers."""
        return f"{self.workers}-workers"


def command_of(lab: str, settings: LabSettings) -> str:
    """The command line that makes the same report. --out is left out: that folder is in use now.

    >>> command_of("autograd", LabSettings(quick=True, out="here"))
    'shoal lab autograd --quick --lang en --seed 0'
    >>> command_of("1", LabSettings(runs="reports/a b/runs"))
    "shoal lab 1 --lang en --seed 0 --runs 'reports/a b/runs'"
    >>> command_of("3", LabSettings(data="mnist", samples=6000))
    'shoal lab 3 --lang en --seed 0 --data mnist --samples 6000'
    """
    words = ["shoal", "lab", lab]
    for field in fields(settings):
        value, flag = getattr(settings, field.name), f"--{field.name.replace('_', '-')}"
        if field.name == "out" or value is False or value in ("", None):
            continue
        words += [flag] if value is True else [flag, str(value)]
    return shlex.join(words)
