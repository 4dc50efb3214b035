"""The line of the user's program that called an operation: cheap to store, formatted only in errors."""

import linecache
import os
import sys
from itertools import islice
from types import CodeType

Site = tuple[CodeType, int]
"""A code object and the offset of the instruction that was running in it."""

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def call_site() -> Site:
    """The innermost caller outside this engine.

    Two attribute reads per frame. Computing the line number costs more than a small operation, so only an error
    does it.
    """
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


def is_ours(filename: str) -> bool:
    """Whether a file belongs to this engine."""
    return filename.startswith(_HERE)


def describe(site: Site) -> str:
    """`train.py:12: loss = a * b`."""
    code, offset = site
    line = next(islice(code.co_positions(), offset // 2, None), (None,))[0] or code.co_firstlineno
    text = linecache.getline(code.co_filename, line).strip()
    place = f"{os.path.basename(code.co_filename)}:{line}"
    return f"{place}: {text}" if text else place
