"""`shoal COMMAND …`: finds the command, runs it, and turns errors into one sentence and an exit code."""

import errno
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from shoal import __version__
from shoal.cli import text
from shoal.errors import ConfigError, ShoalError, unknown

_STORAGE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""A place that takes no more, or nothing: not our mistake, wherever it comes to light."""


class Command(NamedTuple):
    """A command: the module that runs it, and the line that `shoal --help` shows."""

    module: str
    summary: str


COMMANDS: dict[str, Command] = {
    "train": Command(
        "shoal.cli.train", "Train a model, from a recipe and flags; resume a run that was stopped."
    ),
    "launch": Command("shoal.cli.launch", "Start a program of your own on several workers of this machine."),
    "compare": Command(
        "shoal.cli.compare", "The same training in several ways: one table, a verdict, a report."
    ),
    "evaluate": Command(
        "shoal.cli.evaluate", "Loss and accuracy of a run, or of a weights file, on any data set."
    ),
    "lab": Command(
        "shoal.cli.lab", "The labs: run one and get its report, or start a solution and check it."
    ),
    "graph": Command("shoal.cli.graph", "Draw what our own automatic differentiation computes."),
    "data": Command("shoal.cli.data", "Data sets: list, fetch, verify, divide among workers."),
    "bench": Command("shoal.cli.bench", "Measure collectives: shared memory, gloo, MPI, our own algorithms."),
    "explain": Command(
        "shoal.cli.explain", "An all-reduce algorithm round by round, as the code carries it out."
    ),
    "check": Command("shoal.cli.check", "Our contract tests, on an exchange of your own."),
    "doctor": Command(
        "shoal.cli.doctor", "What this machine has, what it lacks, and the command that repairs it."
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point of the command `shoal`."""
    words = list(sys.argv[1:] if argv is None else argv)
    text.accept_any_stream()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = text.caution
            return _dispatch(words)
    except ShoalError as error:
        text.error(error)
        return error.exit_code
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        sys.stderr.close()
        return 141
    except OSError as error:
        if error.errno not in _STORAGE:
            raise
        what = f" {error.filename}" if error.filename else ""
        text.error(
            ShoalError(f"cannot write{what}: {error.strerror}", "Make room, or choose another folder.")
        )
        return ShoalError.exit_code
    except KeyboardInterrupt:
        text.warn("interrupted")
        return 130


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        text.page(_help())
        return 0
    if words[0] in ("-V", "--version"):
        text.show(f"shoal {__version__}")
        return 0
    name, *rest = words
    if name not in COMMANDS:
        raise ConfigError(unknown("command", name, COMMANDS), "`shoal --help` says what each does.")
    return import_module(COMMANDS[name].module).run(rest)


def _help() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(
        f"  {text.bold(f'{name:{width}}')}  {command.summary}" for name, command in COMMANDS.items()
    )
    return (
        f"{text.bold('shoal')} {__version__}: distributed deep learning that is complete, readable, true and fast\n\n"
        f"Usage: shoal COMMAND …        shoal COMMAND --help says more\n\n{commands}\n\n"
        f"Begin with:  shoal compare quickstart"
    )
