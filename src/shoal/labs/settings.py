"""What every lab makes of its settings: the command that a report names, and the runs of an earlier one."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from shoal.errors import ConfigError

NOT_THE_EXPERIMENT = ("out", "runs")
"""Settings that say where things lie, and change nothing about what is measured."""


def command_of(lab: str, settings: Any) -> str:
    """The command line that makes the same experiment, from a lab's settings (a dataclass).

    >>> from shoal.labs.lab1.lab import Settings
    >>> command_of("1", Settings(quick=True, out="here"))
    'shoal lab 1 --data digits --quick --lang en --seed 0'
    """
    words = [f"shoal lab {lab}"]
    for field in fields(settings):
        value, flag = getattr(settings, field.name), f"--{field.name.replace('_', '-')}"
        if field.name in NOT_THE_EXPERIMENT or value is False or value == "":
            continue
        words.append(flag if value is True else f"{flag} {value}")
    return " ".join(words)


def earlier_runs(runs: str) -> Path | None:
    """The runs/ folder of an earlier report, where one was given."""
    if runs and not Path(runs).is_dir():
        raise ConfigError(f"--runs {runs} is not a folder", "Give the runs/ folder of an earlier report.")
    return Path(runs) if runs else None
