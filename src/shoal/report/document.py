"""A report as data: blocks in their order. `markdown` and `html` each render the same document.

Text is plain; `code` between backticks and **strong** between double stars are the only marks. Everything else a
renderer would take for markup is escaped there.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True)
class Heading:
    """A title of a section; level 2 is the highest below the document's own."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """Words."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list."""

    items: Sequence[str]


@dataclass(frozen=True)
class Formula:
    """Equations in plain letters, a line each."""

    text: str


@dataclass(frozen=True)
class Code:
    """Source, as it is."""

    text: str
    caption: str = ""
    language: str = "python"


@dataclass(frozen=True)
class Table:
    """Rows under a header with units. Columns in `right` hold numbers and stand to the right."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(f"a row of {len(row)} cells in a table of {len(self.header)} columns: {row}")


@dataclass(frozen=True)
class Figure:
    """A picture: a file beside the document, drawings for a document of one file, and its words."""

    path: PurePosixPath
    """Of the file."""
    svg: str
    caption: str
    alt: str
    narrow_svg: str = ""
    """For phones, where it differs."""


@dataclass(frozen=True)
class Judgement:
    """A finding in words: the claim, its verdict, the numbers, and the mechanism."""

    verdict: str
    """holds, fails or undecided: chooses the colour."""
    verdict_words: str
    claim: str
    numbers: str
    reason: str = ""


@dataclass(frozen=True)
class Link:
    """Another page: its title, its place, and a line about it."""

    text: str
    target: str
    """A path relative to the document's folder."""
    about: str = ""


@dataclass(frozen=True)
class Links:
    """A list of pages to go to."""

    items: Sequence[Link]


@dataclass(frozen=True)
class Folded:
    """A section that a page shows as its title alone until a reader opens it. Markdown and paper show all of it."""

    title: str
    blocks: Sequence["Block"]


Block = Heading | Paragraph | Bullets | Formula | Code | Table | Figure | Judgement | Links | Folded


@dataclass(frozen=True)
class Document:
    """A title and blocks."""

    title: str
    lang: str
    blocks: Sequence[Block]
    summary: str = ""
    """The result on one line, for lists of documents."""

    @property
    def result(self) -> str:
        """The summary; without one, the claim of the first finding."""
        claims = (block.claim for block in self.blocks if isinstance(block, Judgement))
        return self.summary or next(claims, "")


def unmarked(text: str) -> str:
    """The text without its marks.

    >>> unmarked("run `a*b` **now**")
    'run a*b now'
    """
    return "".join(stretch for stretch, _ in stretches(text))


_MARKS = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*")


def stretches(text: str) -> Iterator[tuple[str, str]]:
    """The stretches of a text, each with its mark: code, strong, or none.

    >>> list(stretches("run `a*b` **now**"))
    [('run ', ''), ('a*b', 'code'), (' ', ''), ('now', 'strong')]
    """
    end = 0
    for match in _MARKS.finditer(text):
        if match.start() > end:
            yield text[end : match.start()], ""
        yield (match[1], "code") if match[1] is not None else (match[2], "strong")
        end = match.end()
    if end < len(text):
        yield text[end:], ""
