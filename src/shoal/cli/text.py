"""Plain words on the terminal, bold and colour only where a person reads them. Imports nothing heavy."""

import os
import shutil
import sys
import textwrap
from typing import TextIO

from shoal.errors import ShoalError, WorkerError


def show(message: str = "") -> None:
    """A line for the user, on standard output."""
    sys.stdout.write(message + "\n")
    sys.stdout.flush()


def warn(message: str) -> None:
    """A line for the user that is not part of the output, on standard error."""
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


def error(problem: ShoalError) -> None:
    """An error of ours: one sentence, and the fix on a line of its own. A worker's failure stands in a box."""
    if isinstance(problem, WorkerError):
        _failure(problem)
        return
    warn(f"{_styled('1;31', 'error:', sys.stderr)} {problem.message}")
    if problem.hint:
        warn(f"  {problem.hint}")


def _failure(problem: WorkerError) -> None:
    """The first failure of several workers: its traceback, if it needs one, then the box, last and easy to find.

    The box is open on the right: the width of a line is not known where it holds a path or a word in Chinese.
    """
    if problem.traceback:
        warn(problem.traceback.rstrip())
    edge = _styled("1;31", "│", sys.stderr)
    warn(_styled("1;31", "┌── error", sys.stderr))
    for line in [*problem.message.splitlines(), *problem.hint.splitlines()]:
        warn(f"{edge} {line}")
    warn(_styled("1;31", "└──", sys.stderr))


def caution(message: Warning | str, category: type[Warning], *_: object) -> None:
    """A warning (in the shape of `warnings.showwarning`): one sentence, as errors are. A notice is no trouble."""
    word = "note:" if category.__name__.endswith("Notice") else "warning:"
    warn(f"{_styled('1;33', word, sys.stderr)} {message}")


def bold(words: str) -> str:
    """Bold, on a terminal."""
    return _styled("1", words, sys.stdout)


def dim(words: str) -> str:
    """Less bright, on a terminal."""
    return _styled("2", words, sys.stdout)


def wrapped(words: str, indent: int) -> str:
    """Text that begins at a column and stays right of it, as wide as the terminal but no wider than reads well."""
    width = min(shutil.get_terminal_size((110, 24)).columns, 110)
    return textwrap.fill(words, width, initial_indent=" " * indent, subsequent_indent=" " * indent)


def _styled(code: str, words: str, stream: TextIO) -> str:
    plain = not stream.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return words if plain else f"\033[{code}m{words}\033[0m"
