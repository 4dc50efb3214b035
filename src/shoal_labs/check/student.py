"""The code of a student: its files, what is written in them and what is not done, its lines that run now."""

import ast
import dis
import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

RETURNS_NOTHING = ("LOAD_CONST", "RETURN_VALUE", "RETURN_CONST")
"""Instructions of a function without a body, whose value is None."""


class NotWrittenError(Exception):
    """A class or function of the hand-out that the student's file does not have, or has without a body."""

    def __init__(self, file: str, name: str) -> None:
        super().__init__(f"{file}.py {name}")


def written(file: str, name: str, *other_names: str) -> Any:
    """A class or function of the student's file, under its name in the hand-out or another one that is accepted.

    A function whose body is empty was not done.
    """
    module = import_module(file)
    for each in (name, *other_names):
        found = getattr(module, each, None)
        if found is not None:
            if inspect.isfunction(found) and is_empty(found):
                raise NotWrittenError(file, name)
            return found
    raise NotWrittenError(file, name)


def with_method(kind: Any, method: str) -> Any:
    """The class, if the student has written this method of it."""
    found = getattr(kind, method, None)
    if not callable(found) or is_empty(found):
        raise NotWrittenError(kind.__module__, f"{kind.__name__}.{method}")
    return kind


def class_like(file: str, part: str, name: str) -> Any:
    """The class of this name or, without one, the first of the file whose name contains `part`."""
    module = import_module(file)
    alike = [key for key, kind in vars(module).items() if inspect.isclass(kind) and part in key.lower()]
    return written(file, name, *alike)


def is_empty(function: Any) -> bool:
    """Whether a function has no body but `pass`, `...` or a docstring.

    >>> def nothing(model):
    ...     "Average."
    >>> is_empty(nothing), is_empty(is_empty)
    (True, False)
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return False  # not written in Python
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("RESUME", "NOP")]
    return all(step.opname in RETURNS_NOTHING and step.argval is None for step in steps)


def code_files(folder: Path) -> list[Path]:
    """In the order of their names, and real files only.

    Editors leave links to nowhere, such as Emacs' .#model.py; a pipe would never end.
    """
    return sorted(path for path in folder.glob("*.py") if path.is_file())


def frames_in(folder: str, frame: FrameType | None = None) -> Iterator[FrameType]:
    """The frames that run the student's code, the innermost first; from a frame on, or of the caller."""
    frame = frame or sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_code.co_filename.startswith(f"{folder}/"):
            yield frame
        frame = frame.f_back


def place_in(folder: str, frame: FrameType | None = None) -> str:
    """The innermost line of the student's code: `model.py:57`; nothing outside of it."""
    inner = next(frames_in(folder, frame or sys._getframe(1)), None)  # pyright: ignore[reportPrivateUsage]
    return f"{inner.f_code.co_filename.rpartition('/')[2]}:{inner.f_lineno}" if inner else ""


def stamp(folder: Path) -> tuple[tuple[str, int], ...]:
    """Changes with these files: what was found out about a solution holds until it is corrected."""
    return tuple((path.name, path.stat().st_mtime_ns) for path in code_files(folder))


def syntax(folder: Path) -> Iterator[tuple[Path, ast.AST]]:
    """Every node of the syntax trees of these files, with its file; nothing of a file that is no Python."""
    for path in code_files(folder):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        yield from ((path, node) for node in ast.walk(tree))
