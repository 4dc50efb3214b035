"""A document as Markdown: readable as it stands, and the same on any page that renders it."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from shoal.printable import printable
from shoal.report.document import (
    Block,
    Bullets,
    Code,
    Document,
    Figure,
    Folded,
    Formula,
    Heading,
    Judgement,
    Link,
    Links,
    Paragraph,
    Table,
    stretches,
)

COLONS = {"zh": "："}
"""Of the languages that do not write ": "."""


def to_markdown(document: Document) -> str:
    """The whole document, a blank line between blocks."""
    colon = COLONS.get(document.lang, ": ")
    parts = [f"# {inline(document.title)}", *_rendered(document.blocks, colon)]
    return printable("\n\n".join(parts) + "\n")


def _rendered(blocks: Sequence[Block], colon: str) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Folded):
            yield _RENDER[Heading](Heading(block.title))
            yield from _rendered(block.blocks, colon)
        else:
            yield _judgement(block, colon) if isinstance(block, Judgement) else _RENDER[type(block)](block)


def inline(text: str) -> str:
    """Text with its marks kept and everything else that Markdown would read as markup escaped.

    >>> inline("a_b * c < d, `x_y` and **so**")
    'a\\\\_b \\\\* c &lt; d, `x_y` and **so**'
    """
    return "".join(_MARKED[mark](stretch) for stretch, mark in stretches(text))


def escape(text: str) -> str:
    """Plain text that stays plain. A number at the start of a line stays a number, too."""
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    text = re.sub(r"([\\`*_\[\]|~])", r"\\\1", text)
    return re.sub(r"(?m)^(\s*(?=[#>+-])|\s*\d+(?=[.)]))(.)(?=\s)", r"\1\\\2", text)


_MARKED: dict[str, Callable[[str], str]] = {
    "": escape,
    "code": lambda text: f"`{text}`",
    "strong": lambda text: f"**{escape(text)}**",
}


def _fenced(text: str, language: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _code(block: Code) -> str:
    caption = f"{inline(block.caption)}\n\n" if block.caption else ""
    return caption + _fenced(block.text, block.language)


def _cell(text: str) -> str:
    # A bar inside code ends the cell all the same, so it is escaped there, too.
    parts = stretches(" ".join(text.split()))
    return "".join(
        _MARKED[mark](stretch.replace("|", r"\|") if mark == "code" else stretch) for stretch, mark in parts
    )


def _table(block: Table) -> str:
    rule = ["---:" if column in block.right else "---" for column in range(len(block.header))]
    rows = [[_cell(cell) for cell in row] for row in (block.header, *block.rows)]
    lines = [rows[0], rule, *rows[1:]]
    return f"**{inline(block.caption)}**\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _judgement(block: Judgement, colon: str) -> str:
    lines = [f"**{escape(block.verdict_words)}**{colon}{inline(block.claim)}", f"  {inline(block.numbers)}"]
    return "- " + "  \n".join(lines) + (f"  \n  {inline(block.reason)}" if block.reason else "")


def _link(link: Link) -> str:
    about = f": {inline(link.about)}" if link.about else ""
    return f"- [{escape(link.text)}](<{quote(link.target, errors='surrogateescape')}>){about}"


_RENDER: dict[type, Callable[[Any], str]] = {
    Heading: lambda block: f"{'#' * block.level} {inline(block.text)}",
    Paragraph: lambda block: inline(block.text.strip()),
    Bullets: lambda block: "\n".join(f"- {inline(item)}" for item in block.items),
    Formula: lambda block: _fenced(block.text, "text"),
    Code: _code,
    Table: _table,
    Links: lambda block: "\n".join(map(_link, block.items)),
    Figure: lambda block: f"![{escape(block.alt)}]({block.path})\n\n*{inline(block.caption)}*",
}
