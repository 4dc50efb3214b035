"""A document as one HTML file that needs nothing else: no network, no script, pictures inside, light and dark."""

import base64
from collections.abc import Callable
from html import escape
from importlib import resources
from typing import Any

from shoal.printable import printable
from shoal.report.document import (
    Block,
    Bullets,
    Code,
    Document,
    Figure,
    Formula,
    Heading,
    Judgement,
    Paragraph,
    Table,
    pieces,
)

_LANGUAGE_TAGS = {"zh": "zh-Hans"}
_PICTURE_TYPES = {".png": "image/png", ".svg": "image/svg+xml"}


def to_html(document: Document) -> str:
    """The whole page."""
    style = (resources.files("shoal.report") / "page.css").read_text(encoding="utf-8")
    body = "\n".join(map(_block, document.blocks))
    title = escape(document.title)
    lang = _LANGUAGE_TAGS.get(document.lang, document.lang)
    return printable(
        f'<!doctype html>\n<html lang="{lang}">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{title}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )


def inline(text: str) -> str:
    """Text with its marks as elements and everything else escaped.

    >>> inline("a < b, `x & y`")
    'a &lt; b, <code>x &amp; y</code>'
    """
    return "".join(_MARKED[piece.mark].format(escape(piece.text)) for piece in pieces(text))


_MARKED = {"": "{}", "code": "<code>{}</code>", "strong": "<strong>{}</strong>"}


def _code(block: Code) -> str:
    code = f'<pre tabindex="0"><code>{escape(block.text.rstrip())}</code></pre>'
    if not block.caption:
        return code
    return f'<figure class="code"><figcaption>{inline(block.caption)}</figcaption>{code}</figure>'


def _table(block: Table) -> str:
    def cell(tag: str, column: int, text: str) -> str:
        number = ' class="number"' if column in block.right else ""
        return f"<{tag}{number}>{inline(text)}</{tag}>"

    def row(tag: str, cells: Any) -> str:
        return "<tr>" + "".join(cell(tag, column, text) for column, text in enumerate(cells)) + "</tr>"

    body = "\n".join(row("td", cells) for cells in block.rows)
    return (
        f'<div class="table" tabindex="0"><table>\n<caption>{inline(block.caption)}</caption>\n'
        f"<thead>{row('th', block.header)}</thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def _figure(block: Figure) -> str:
    data = (
        f"data:{_PICTURE_TYPES[block.path.suffix]};base64,{base64.b64encode(block.content).decode('ascii')}"
    )
    room = "wide" if block.wide else "narrow"
    return (
        f'<figure class="{room}"><img alt="{escape(block.alt)}" src="{data}">\n'
        f"<figcaption>{inline(block.caption)}</figcaption></figure>"
    )


def _judgement(block: Judgement) -> str:
    reason = f'<p class="reason">{inline(block.reason)}</p>' if block.reason else ""
    verdict = f'<span class="verdict">{escape(block.verdict_words)}</span>'
    return (
        f'<section class="finding {escape(block.verdict)}"><p>{verdict} '
        f"<strong>{inline(block.claim)}</strong></p><p>{inline(block.numbers)}</p>{reason}</section>"
    )


_RENDER: dict[type, Callable[[Any], str]] = {
    Heading: lambda block: f"<h{block.level}>{inline(block.text)}</h{block.level}>",
    Paragraph: lambda block: f"<p>{inline(block.text.strip())}</p>",
    Bullets: lambda block: (
        "<ul>\n" + "\n".join(f"<li>{inline(item)}</li>" for item in block.items) + "\n</ul>"
    ),
    Formula: lambda block: f'<pre class="formula" tabindex="0">{escape(block.text.strip())}</pre>',
    Code: _code,
    Table: _table,
    Figure: _figure,
    Judgement: _judgement,
}


def _block(block: Block) -> str:
    return _RENDER[type(block)](block)
