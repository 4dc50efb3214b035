"""Plain words on the terminal, bold and colour only where a person reads them. Imports nothing heavy."""

import io
import os
import re
import shutil
import sys
import textwrap
from typing import TextIO

from shoal.errors import ShoalError, WorkerError

_ESCAPES = re.compile(r"\033\[[\d;]*m")
_FLAG = re.compile(r"Usage: | *\S.*? {2,}(?=\S)")
"""What stands left of the first gap in a line."""


def accept_any_stream() -> None:
    """Make the standard streams ones that can always be written to.

    Where the terminal has no such letter (× in ASCII) a question mark stands for it, and what was closed (`>&-`) leads
    nowhere: neither is a reason to lose a run.
    """
    for name in ("stdout", "stderr"):
        stream: TextIO | None = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (open as long as we are)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def show(message: str = "") -> None:
    """A line for the user, on standard output."""
    try:
        sys.stdout.write(message + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (or Python would try again at its end)
        raise ShoalError(f"cannot write to standard output: {problem.strerror}") from None


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
    # Torch adds a stack of C++, which is for no user.
    sentence = str(message).partition("\nException raised from ")[0]
    warn(f"{_styled('1;33', word, sys.stderr)} {sentence}")


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


def page(words: str) -> None:
    """A page of help, on standard output. Lines that the terminal is too narrow for are broken between words."""
    width = shutil.get_terminal_size((0, 24)).columns
    show(fitted(words, width) if width else words)


def fitted(words: str, width: int) -> str:
    """The lines of a page, none wider than `width`, so that a terminal cuts no word in two.

    What is broken goes on where its text began: below the sentence of a flag, below the first letter of others. Lines
    of running text are filled anew.

    >>> print(fitted("  --name TEXT  what it is called, and where it lies", 36))
      --name TEXT  what it is called,
                   and where it lies
    """
    lines: list[str] = []
    for line in words.split("\n"):
        if lines and _is_prose(line) and _is_prose(lines[-1]):
            lines[-1] += f" {line}"
        else:
            lines.append(line)
    too_wide = max(map(_columns, words.split("\n")), default=0) > width
    return "\n".join(_broken(line, width) for line in lines) if too_wide else words


def _is_prose(line: str) -> bool:
    return bool(line) and not line.startswith(" ") and "  " not in line and not line.startswith("Usage:")


def _broken(line: str, width: int) -> str:
    if _columns(line) <= width:
        return line
    flag, sentence = _parts(line)
    indent = _columns(flag)
    if indent > width // 2:  # no room beside the flag: below it
        indent = _leading(line) + 6
        return f"{flag.rstrip()}\n{_broken(' ' * indent + sentence, width)}"
    # What stands in brackets belongs together: [--out DIR] is not broken.
    whole = re.sub(r"\[[^\[\]\033]*\]", lambda found: found[0].replace(" ", "\0"), sentence)
    lines, row = list[str](), flag
    for word in whole.split(" "):
        if _columns(row) > indent and _columns(row) + 1 + _columns(word) > width:
            lines.append(row)
            row = " " * indent
        row += word if _columns(row) <= indent else f" {word}"
    return "\n".join([*lines, row]).replace("\0", " ")


def _parts(line: str) -> tuple[str, str]:
    """A flag with the space behind it, and its sentence; of another line, its indentation and the rest."""
    found = _FLAG.match(line)
    cut = found.end() if found else _leading(line)
    return line[:cut], line[cut:]


def _leading(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _columns(line: str) -> int:
    return len(_ESCAPES.sub("", line))


def _styled(code: str, words: str, stream: TextIO) -> str:
    plain = not stream.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return words if plain else f"\033[{code}m{words}\033[0m"
