"""What commands write: text on the terminal, in paragraphs and columns that fit its width; files."""

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from shoal.errors import ConfigError, ShoalError, WorkerError
from shoal.printable import excerpt, printable
from shoal.report.plain_tables import width

WIDEST = 100
"""Columns of a page of help on a wide terminal, or where there is none."""


def accept_any_stream() -> None:
    """Make sure that the standard streams can be written to, so that no run is lost because of them.

    A letter that the terminal lacks (× in ASCII) becomes a question mark; a closed stream (`>&-`) discards everything.
    """
    for name in ("stdout", "stderr"):
        stream: TextIO | None = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (open until the process ends)
        elif isinstance(stream, io.TextIOWrapper):
            # Reconfiguring flushes: a pipe without a reader fails here, and again where something is written to it.
            with contextlib.suppress(OSError):
                stream.reconfigure(errors="replace")


def show(message: str = "") -> None:
    """Write a line to standard output."""
    try:
        sys.stdout.write(_safe(message, sys.stdout) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (Python would flush the old one again at exit)
        raise ShoalError(f"cannot write to standard output: {problem.strerror}") from None


def warn(message: str) -> None:
    """Write a line to standard error. If that is not possible, nothing is lost but the line."""
    try:
        sys.stderr.write(_safe(message, sys.stderr) + "\n")
        sys.stderr.flush()
    except OSError:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (Python would flush the old one again at exit)


def error(problem: ShoalError) -> None:
    """Show an error: one sentence, and the fix on a line of its own; a worker's failure in a box."""
    if isinstance(problem, WorkerError):
        _failure(problem)
        return
    warn(f"{_styled('1;31', 'error:', sys.stderr)} {printable(excerpt(problem.message))}")
    if problem.hint:
        warn(f"  {printable(excerpt(problem.hint))}")


def _failure(problem: WorkerError) -> None:
    """The first failure among several workers: its traceback, if there is one, then the box.

    The box has no right edge: Chinese words make the width of a line unknown.
    """
    if problem.traceback:
        warn(printable(problem.traceback.rstrip()))
    edge = _styled("1;31", "│", sys.stderr)
    warn(_styled("1;31", "┌── error", sys.stderr))
    for line in [*problem.message.splitlines(), *problem.hint.splitlines()]:
        warn(f"{edge} {printable(line)}")
    warn(_styled("1;31", "└──", sys.stderr))


def caution(message: Warning | str, category: type[Warning], *_: object) -> None:
    """Show a warning as one sentence, or a note; has the signature of `warnings.showwarning`."""
    word = "note:" if category.__name__.endswith("Notice") else "warning:"
    # Torch appends a C++ stack trace, which does not help the user.
    sentence = str(message).partition("\nException raised from ")[0]
    warn(f"{_styled('1;33', word, sys.stderr)} {printable(sentence)}")


def next_step(*command: str | Path, first: str = "") -> None:
    """Show what to type next, as the last line of a command: words that a shell takes as written.

    `first` is what to do before it, up to that command. Nothing with --json or --quiet: the caller leaves it out.

    >>> next_step("shoal", "report", Path("runs/my run"))
    next  shoal report 'runs/my run'
    >>> next_step("shoal", "lab", "check", "1", first="edit workers.py, then")
    next  edit workers.py, then  shoal lab check 1
    """
    show(f"{bold('next')}  {f'{first}  ' if first else ''}{shlex.join(map(str, command))}")


def bold(words: str) -> str:
    """Bold, on a terminal."""
    return _styled("1", words, sys.stdout)


def dim(words: str) -> str:
    """Dim, on a terminal."""
    return _styled("2", words, sys.stdout)


def on_colour(colour: str, words: str) -> str:
    """On a background of a colour, on a terminal."""
    return _styled(_ON_COLOURS[colour], words, sys.stdout)


def wrapped(words: str, indent: int, hanging: int | None = None) -> str:
    """Text between `indent` and the width of a page; lines after the first begin at `hanging`, if it is given."""
    return textwrap.fill(
        words,
        page_width(),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent if hanging is None else hanging),
        break_long_words=False,
        break_on_hyphens=False,
    )


def page_width() -> int:
    """The width of the terminal, but no more than reads well."""
    return min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST)


def paragraph(words: str) -> str:
    """A paragraph of a page, wrapped; an indented one, or one with a gap in it, stays as it is.

    >>> print(paragraph("    group = shoal.join()\\n    group.barrier().wait()"))
        group = shoal.join()
        group.barrier().wait()
    """
    as_it_is = words.startswith(" ") or "  " in words
    return words if as_it_is else wrapped(" ".join(words.split()), 0, 7 if words.startswith("Usage: ") else 0)


def rows(pairs: Mapping[str, str]) -> str:
    """Two columns, the sentences aligned and wrapped; a name too long for its column gets a line of its own.

    >>> print(rows({"--out DIR": "Folder of the report.", "--json": "Print JSON."}))
      --out DIR  Folder of the report.
      --json     Print JSON.
    >>> print(rows({"损失": "0.25", "loss": "0.25"}))
      损失  0.25
      loss  0.25
    """
    room = min(max(map(width, pairs), default=0), page_width() // 2 - 4)
    lines: list[str] = []
    for name, sentence in pairs.items():
        column = wrapped(sentence, room + 4)
        if width(name) > room:
            lines += [f"  {bold(name)}", column]
        else:
            lines.append(f"  {bold(name)}{column[2 + width(name) :]}")
    return "\n".join(lines)


def _styled(code: str, words: str, stream: TextIO) -> str:
    return f"\033[{code}m{printable(words)}\033[0m" if has_styles(stream) else words


def has_styles(stream: TextIO) -> bool:
    """Whether a stream shows bold and colours: a terminal, unless the user wants none."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


PACKAGE = Path(__file__).parents[1]
_PAGE = re.compile(r"(?<![\w./])docs/[\w/-]+\.md\b")


def with_pages(message: str, package: Path = PACKAGE) -> str:
    """A message whose pages, `docs/NAME.md`, are paths that exist: in the package, or in the checkout that it is in.

    In the folder of the checkout the short name is such a path.
    """

    def found(name: re.Match[str]) -> str:
        pages = (home / name[0] for home in (package, package.parents[1]))
        page = next((page for page in pages if page.is_file()), Path(name[0]))
        return name[0] if Path(name[0]).is_file() and page.samefile(name[0]) else str(page)

    return _PAGE.sub(found, message)


def _safe(message: str, stream: TextIO) -> str:
    """The message with all control characters escaped, but for our own bold and colours on a terminal."""
    message = with_pages(message)
    if not has_styles(stream):
        return printable(message)
    return "".join(part if _STYLE.fullmatch(part) else printable(part) for part in _STYLE.split(message))


_ON_COLOURS = {"blue": "97;44", "yellow": "30;103", "green": "30;102", "magenta": "97;45", "cyan": "30;106"}
"""White or black on each colour, so that words are legible on light and dark terminals."""
_STYLE = re.compile(rf"(\033\[(?:0|1|2|1;31|1;33|{'|'.join(_ON_COLOURS.values())})m)")


def write_file(path: Path, content: str) -> None:
    """Write a file, whole or not at all."""
    from shoal.events.folder import write_whole

    if is_device_or_folder(path):
        raise ConfigError(f"cannot write {path}: it exists and is not a file", "Choose another name.")
    try:
        write_whole(path, content)
    except OSError as error:
        hint = "Choose another file, in a folder that exists."
        raise ConfigError(f"cannot write {path}: {error.strerror}", hint) from None


def write_new_file(path: Path, content: str) -> None:
    """Write the file of `--output`, which must not exist."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(content)
    except FileExistsError:
        raise ConfigError(
            f"cannot write {path}: it exists", "Choose another --output, or remove it."
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", "Choose another --output.") from None


def is_device_or_folder(path: Path) -> bool:
    """Whether it exists and is no file: a folder, or a pipe or device that a rename would replace, as /dev/stdout."""
    return path.exists() and not path.is_file()
