"""`shoal COMMAND …`: find the command, run it, turn errors into one sentence and an exit code."""

import errno
import os
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

from shoal import __version__
from shoal.cli import text
from shoal.cli.command import Command, CommandGroup
from shoal.cli.interrupts import ending_while_torch_loads, exit_code_of, repeating_lost_interrupts
from shoal.errors import ConfigError, ShoalError, sys_exit_error, unknown
from shoal.launch.process.template import keeping_templates

_STORAGE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""A full or read-only disk is not a bug, wherever it is noticed."""

GROUPS: dict[str, dict[str, str]] = {
    "Train": {
        "train": "shoal.cli.train",
        "evaluate": "shoal.cli.evaluate",
        "prune": "shoal.cli.prune",
        "launch": "shoal.cli.launch",
        "render": "shoal.cli.render",
        "data": "shoal.cli.data",
    },
    "Understand": {
        "compare": "shoal.cli.compare",
        "report": "shoal.cli.report",
        "watch": "shoal.cli.watch",
        "trace": "shoal.cli.trace",
        "runs": "shoal.cli.runs",
        "explain": "shoal.cli.explain",
        "graph": "shoal.cli.graph",
        "docs": "shoal.cli.docs",
    },
    "Measure and check": {
        "memory": "shoal.cli.memory",
        "bench": "shoal.cli.bench",
        "verify": "shoal.cli.verify",
        "check": "shoal.cli.check",
        "doctor": "shoal.cli.doctor.command",
    },
    "Learn and teach": {},
    "Set up": {"config": "shoal.cli.config", "completion": "shoal.cli.completion"},
}
"""Our commands, with the module that declares each as COMMAND, by what a user wants. Other packages, the labs among
them, add theirs to the group without any, by an entry point of the group `shoal.commands`."""
OWN = {name: module for group in GROUPS.values() for name, module in group.items()}


@cache
def all_groups() -> dict[str, dict[str, str]]:
    """Every command, those of other packages included."""
    from importlib.metadata import entry_points  # takes as long as the rest of a small command

    added = {point.name: point.value for point in entry_points(group="shoal.commands")}
    groups = {title: group or added for title, group in GROUPS.items()}
    return {title: group for title, group in groups.items() if group}


def module_of(name: str) -> str:
    """The module of a command; empty where there is no such command."""
    return OWN.get(name) or all_commands().get(name, "")


def all_commands() -> dict[str, str]:
    """Every command with its module."""
    return {name: module for group in all_groups().values() for name, module in group.items()}


def main(argv: Sequence[str] | None = None, command: CommandGroup | None = None) -> int:
    """The entry point of the command `shoal`; with `command`, of this command of another package alone."""
    words = list(sys.argv[1:] if argv is None else argv)
    text.accept_any_stream()
    # Torch reads it when it is loaded. Its warnings of broken connections are stacks of C++; our errors name the rank.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        with (
            ending_while_torch_loads(),
            repeating_lost_interrupts(),
            warnings.catch_warnings(),
            keeping_templates(),
        ):
            warnings.showwarning = text.caution
            return command.execute(words) if command else _dispatch(words)
    except ShoalError as error:
        text.error(error)
        return error.exit_code
    except BrokenPipeError:  # the reader of our output is gone, as after `| head`
        sys.stderr.close()
        return 141
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            text.error(ShoalError(f"the file name {str(error.filename)[:80]}… is too long"))
            return ShoalError.exit_code
        if isinstance(error, PermissionError) and error.filename:
            text.error(ShoalError(f"cannot open {error.filename}: {error.strerror}"))
            return ShoalError.exit_code
        if error.errno not in _STORAGE:
            raise
        what = f" {error.filename}" if error.filename else ""
        text.error(
            ShoalError(f"cannot write{what}: {error.strerror}", "Free some space, or choose another folder.")
        )
        return ShoalError.exit_code
    except KeyboardInterrupt as error:
        text.warn("interrupted")
        return exit_code_of(error)
    except SystemExit as error:  # nothing of ours raises it: exit code 0 and no word would look like success
        text.error(sys_exit_error("a function of your own", error))
        return ConfigError.exit_code


def _dispatch(words: list[str]) -> int:
    name, *rest = words or ["help"]
    if name in ("-V", "--version"):
        text.show(f"shoal {__version__}")
        return 0
    if name in ("-h", "--help", "help"):
        if not rest:
            _show_help()
            return 0
        name, rest = rest[0], ["--help", *rest[1:]]
    if not module_of(name):
        raise ConfigError(
            unknown("command", name, [*all_commands(), "--help", "--version"]),
            "`shoal --help` describes each.",
        )
    return declared(name).execute(rest)


def declared(name: str) -> Command[Any] | CommandGroup:
    """The command of this name, as its module declares it."""
    return import_module(module_of(name)).COMMAND


def _show_help() -> None:
    room = max(map(len, all_commands()))
    blocks = [
        f"{text.bold('shoal')} {__version__}: distributed deep learning, complete, readable, correct and fast",
        "Usage: shoal COMMAND …",
    ]
    for title, names in all_groups().items():
        summaries = {name: declared(name).paragraphs[0].partition(": ")[0] for name in names}
        rows = {f"{name:{room}}": summary.removesuffix(".") for name, summary in summaries.items()}
        blocks.append(f"{title}\n{text.rows(rows)}")
    blocks += ["`shoal help COMMAND` describes one.", "Start with:  shoal compare quickstart"]
    text.show("\n\n".join(blocks))
