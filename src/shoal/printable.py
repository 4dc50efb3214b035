"""Text of others made safe for a terminal or a page; numbers of things; a terminal that is gone."""

import errno
import re
from collections.abc import Generator
from contextlib import contextmanager

_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1: cursor, title and colour sequences
    r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # marks that reorder what is read
    r"\ud800-\udfff]"  # bytes that were not UTF-8
)


def printable(text: str) -> str:
    r"""The text with every character that a terminal would obey written as its escape.

    >>> printable("a\x1b[2Jb\r\ud8ff")
    'a\\x1b[2Jb\\r\\ud8ff'
    >>> printable("精度 ±1 %\n\tdone")
    '精度 ±1 %\n\tdone'
    """
    return _UNSAFE.sub(lambda found: repr(found[0])[1:-1], text)


def counted(number: int, noun: str, plural: str = "s") -> str:
    """A number of things.

    >>> counted(1, "step"), counted(2000, "step"), counted(2, "batch", "es")
    ('1 step', '2000 steps', '2 batches')
    """
    return f"{number} {noun}{plural * (number != 1)}"


LONGEST = 200
"""Characters of a value that an error shows."""


def shortened(text: str) -> str:
    """The text, or the beginning of a very long one.

    >>> len(shortened("9" * 5000)), shortened("eth0")
    (219, 'eth0')
    """
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"


MOST_SHOWN = 6000
"""Characters of an error text that a terminal shows."""
_LONG_WORD = re.compile(r"\S{999,}[^\s:;,.]")


def excerpt(text: str) -> str:
    """The text; of a very long one, and of a very long word such as a path, the beginning and the end.

    >>> len(excerpt("x " * 10**7)) < 2 * MOST_SHOWN, len(excerpt(f"cannot read {'x' * 5000}")) < 300
    (True, True)
    >>> excerpt("no such column")
    'no such column'
    """
    text = _LONG_WORD.sub(lambda word: f"{shortened(word[0])} … {word[0][-20:]}", text)
    half = MOST_SHOWN // 2
    if len(text) <= MOST_SHOWN:
        return text
    return f"{text[:half]} … ({len(text):,} characters in all) … {text[-half:]}"


@contextmanager
def unless_hung_up() -> Generator[None]:
    """Ignore that a terminal was closed: a run that saves its state must not fail by it."""
    try:
        yield
    except OSError as problem:
        if problem.errno != errno.EIO:
            raise
