"""A document as one HTML file that needs nothing else: no network, pictures inside, light and dark.

The one script, of timelines, zooms; without it they are pictures.
"""

import re
from collections.abc import Callable, Sequence
from html import escape
from importlib import resources
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
    unmarked,
)
from shoal.report.plain_tables import width

LANGUAGE_TAGS = {"zh": "zh-Hans"}
PHONE_PX = 350
"""The width of a phone's column: a drawing that is wider scrolls there, and a sign says so."""
PHONE_LETTERS = 44
"""Letters of a table that fit side by side on a phone."""
LONG_NAME = 32
"""A name in the first column that is longer than this may be broken."""


def to_html(document: Document) -> str:
    """The whole page."""
    style = (resources.files("shoal.report") / "page.css").read_text(encoding="utf-8")
    body = rendered(document.blocks)
    script = _script("timeline.js") if '<svg class="timeline"' in body else ""
    title = escape(document.title)
    lang = LANGUAGE_TAGS.get(document.lang, document.lang)
    return printable(
        f'<!doctype html>\n<html lang="{lang}">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="generator" content="shoal">\n'
        f'<meta name="description" content="{escape(unmarked(document.result))}">\n'
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{title}</h1>\n{body}\n</main>\n{script}</body>\n</html>\n"
    )


def _script(name: str) -> str:
    return f"<script>\n{(resources.files('shoal.report') / name).read_text(encoding='utf-8')}</script>\n"


def inline(text: str) -> str:
    """Text with its marks as elements and everything else escaped.

    >>> inline("a < b, `x & y`, B_W")
    'a &lt; b, <code>x &amp; y</code>, B<sub>W</sub>'
    """
    return "".join(_MARKED[mark](escape(stretch)) for stretch, mark in stretches(text))


_HASH = re.compile(r"\b[0-9a-f]{40,}\b")
_RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ᵗⁿⁱᴺᵂᵀ", "0123456789+−()tniNWT", strict=True))
_LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₜₙᵢⱼₖₘ", "0123456789+−()tnijkm", strict=True))
_SCRIPTS = re.compile(rf"([{''.join(_RAISED)}]+)|([{''.join(_LOWERED)}]+)")
_INDEX = re.compile(r"(?<!\w)([^\W\d_])_([^\W_]+)(?!\w)")


def with_scripts(text: str) -> str:
    """Raised and lowered letters, and the index of a letter (`B_W`), as elements.

    >>> with_scripts("vₜ₊₁ = β₂ᵗ⁺¹, B_W, Σ_{j ∈ Bᵢ}")
    'v<sub>t+1</sub> = β<sub>2</sub><sup>t+1</sup>, B<sub>W</sub>, Σ<sub>j ∈ B<sub>i</sub></sub>'
    """

    def scripts(match: re.Match[str]) -> str:
        raised, lowered = match.groups()
        if raised:
            return f"<sup>{''.join(map(_RAISED.__getitem__, raised))}</sup>"
        return f"<sub>{''.join(map(_LOWERED.__getitem__, lowered))}</sub>"

    text = _INDEX.sub(r"\1<sub>\2</sub>", _SCRIPTS.sub(scripts, text))
    return re.sub(r"_\{([^}]*)\}", r"<sub>\1</sub>", text)


def _plain(text: str) -> str:
    """Flags, and numbers with their signs and units, stay on one line; a hash may be broken anywhere."""
    text = re.sub(r"(?<=\d) (?=[%×·])|(?<=[±≈·]) (?=\d)", "\u00a0", text)
    return _HASH.sub(r'<span class="hash">\g<0></span>', with_scripts(_whole_flags(text)))


def _whole_flags(text: str) -> str:
    return re.sub(r"(?<![\w-])--[a-z][\w.-]*", r'<span class="whole">\g<0></span>', text)


_MARKED: dict[str, Callable[[str], str]] = {
    "": _plain,
    "code": lambda text: f"<code>{_whole_flags(text)}</code>",
    "strong": lambda text: f"<strong>{_plain(text)}</strong>",
}


def _formula(block: Formula) -> str:
    """A line for each equation; wide gaps divide equations of one line, which may go onto lines of their own."""
    equations = re.split(r"\n|\s{6,}", block.text.strip())
    lines = "\n".join(f"<p>{with_scripts(escape(equation))}</p>" for equation in equations)
    return f'<div class="formula">\n{lines}\n</div>'


def _code(block: Code) -> str:
    """Every line knows its indentation: a line that is folded goes on below it. A command is folded on phones, too."""
    lines = [
        f'<span style="--indent:{len(line) - len(line.lstrip())}ch">{_whole_flags(escape(line))}\n</span>'
        for line in block.text.rstrip().splitlines()
    ]
    kind = ' class="command"' if block.language == "sh" else ""
    code = f'<pre{kind} tabindex="0"><code>{"".join(lines)}</code></pre>'
    if not block.caption:
        return code
    return f'<figure class="code"><figcaption>{inline(block.caption)}</figcaption>{code}</figure>'


def _table(block: Table) -> str:
    """The table scrolls sideways if it must, its caption does not; the first column stays in view."""

    def cell(tag: str, column: int, text: str) -> str:
        kinds = ["number"] * (column in block.right) + ["name"] * (column == 0 and width(text) <= LONG_NAME)
        attributes = f' class="{" ".join(kinds)}"' if kinds else ""
        scope = ' scope="col"' if tag == "th" else ""
        return f"<{tag}{scope}{attributes}>{inline(text)}</{tag}>"

    def row(tag: str, cells: Any) -> str:
        return "<tr>" + "".join(cell(tag, column, text) for column, text in enumerate(cells)) + "</tr>"

    body = "\n".join(row("td", cells) for cells in block.rows)
    kind = "table scrolls" if _letters(block) > PHONE_LETTERS else "table"
    return (
        f'<figure class="{kind}"><figcaption>{inline(block.caption)}</figcaption>\n'
        f'<div class="sideways" tabindex="0"><table>\n<thead>{row("th", block.header)}</thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div></figure>"
    )


def _letters(block: Table) -> int:
    """The least width of a table: numbers and short names stay whole, other cells are broken between words.

    A hash does not count: it is broken where the line ends.
    """

    def least(column: int, text: str, is_header: bool) -> int:
        whole = not is_header and (column in block.right or (column == 0 and width(text) <= LONG_NAME))
        if whole:
            return width(text)
        # Chinese is broken after any character.
        return max(
            map(width, re.findall(r"[^\s\u3000-\u9fff\uff00-\uffef]+|\S", _HASH.sub("", text))), default=0
        )

    rows = [(block.header, True), *((row, False) for row in block.rows)]
    widths = [
        max(least(column, row[column], is_header) for row, is_header in rows)
        for column in range(len(block.header))
    ]
    return sum(widths) + 2 * len(widths)


def _figure(block: Figure) -> str:
    def drawing(svg: str, kind: str) -> str:
        wide, high = _size(svg)
        tall = high / wide
        kinds = f'class="{kind}" style="--tall:{tall:.3g}" role="img" aria-label="{escape(block.alt)}"'
        return svg.replace("<svg", f"<svg {kinds}", 1)

    if block.narrow_svg:
        drawings = drawing(block.svg, "wide") + "\n" + drawing(block.narrow_svg, "narrow")
    else:
        drawings = f'<div class="sideways" tabindex="0">{drawing(block.svg, "only")}</div>'
    scrolls = not block.narrow_svg and _size(block.svg)[0] > PHONE_PX
    opening = '<figure class="scrolls">' if scrolls else "<figure>"
    return f"{opening}\n{drawings}\n<figcaption>{inline(block.caption)}</figcaption></figure>"


def _size(svg: str) -> tuple[float, float]:
    """Width and height of a drawing, in its own units."""
    box = re.search(r'viewBox="\S+ \S+ (\S+) (\S+)"', svg)
    return (float(box[1]), float(box[2])) if box else (1.0, 1.0)


def _judgement(block: Judgement) -> str:
    reason = f'<p class="reason">{inline(block.reason)}</p>' if block.reason else ""
    verdict = f'<span class="verdict">{escape(block.verdict_words)}</span>'
    return (
        f'<section class="finding {escape(block.verdict)}"><p>{verdict} '
        f"<strong>{inline(block.claim)}</strong></p><p>{inline(block.numbers)}</p>{reason}</section>"
    )


def _link(link: Link) -> str:
    about = f" <span>{inline(link.about)}</span>" if link.about else ""
    target = escape(quote(link.target, errors="surrogateescape"))
    return f'<li><a href="{target}">{escape(link.text)}</a>{about}</li>'


def rendered(blocks: Sequence[Block]) -> str:
    """Blocks as elements, for a page that is put together elsewhere."""
    return "\n".join(_RENDER[type(block)](block) for block in blocks)


_RENDER: dict[type, Callable[[Any], str]] = {
    Heading: lambda block: f"<h{block.level}>{inline(block.text)}</h{block.level}>",
    Paragraph: lambda block: f"<p>{inline(block.text.strip())}</p>",
    Bullets: lambda block: (
        "<ul>\n" + "\n".join(f"<li>{inline(item)}</li>" for item in block.items) + "\n</ul>"
    ),
    Formula: _formula,
    Code: _code,
    Table: _table,
    Figure: _figure,
    Judgement: _judgement,
    Links: lambda block: '<ul class="links">\n' + "\n".join(map(_link, block.items)) + "\n</ul>",
    Folded: lambda block: (
        f"<details>\n<summary><h2>{inline(block.title)}</h2></summary>\n{rendered(block.blocks)}\n</details>"
    ),
}
