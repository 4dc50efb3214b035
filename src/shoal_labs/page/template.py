"""A page as a template: a Markdown file per lab and language, with places for numbers, tables, figures and findings.

    # Lab 1: gradient descent ({data})       the title; ## and ### are headings
    Text with `code` and {places:.2f}.       a paragraph; its values are the lab's (`Content.values`)
    - an item                                a list
    {for:on_gpu} On a GPU, …                 once for each of `Content.each["on_gpu"]`, with its values: often no time;
                                             a place may have a value in its name: {for:workers} {figure:loss-<workers>}
    ```formula                               equations; ```sh for commands

    {figure:loss}                            a figure, its caption, and its description for those who cannot see it
    : Training loss against …
    : alt: Three panels …

    {table:results}                          a table, its caption and its columns
    : End of training …
    | Optimizer | Accuracy (%) |

    {code:ring}                              source, and what it is; {output:trace} is what a program printed
    : The ring, from messages alone

    {finding:smooth}                         a finding: claim, numbers, and why, for each verdict it can have
    : GD's loss rises less often than SGD's.
    : numbers: {gd:.1f} % against {sgd:.1f} %
    : holds: …
    : fails: …

    {opening} {machine} {counts}             what all labs share: `SHARED`

`{x:sci}` writes a small number in powers of ten. A place that the lab does not fill is an error.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from string import Formatter
from typing import Any

from shoal.kit.findings import Finding
from shoal.kit.page import Block, Bullets, Code, Document, Formula, Heading, Judgement, Paragraph, Table
from shoal_labs.page.pictures import Pictures
from shoal_labs.page.table import PageTable, cell
from shoal_labs.words import Words

SHARED = ("opening", "machine", "counts")
_PLACE = re.compile(r"\{(figure|table|code|output|finding):([\w<>-]+)\}")
_NAMED = re.compile(r"<(\w+)>")
_FOR = re.compile(r"\{for:(\w+)\}\s*")
_PART = re.compile(r"(numbers|holds|fails|undecided|alt): (.*)", re.DOTALL)

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Content:
    """What a lab puts into its template."""

    values: Values = field(default_factory=dict[str, Any])
    """Numbers and names in the text."""
    each: Mapping[str, Sequence[Values]] = field(default_factory=dict[str, Sequence[Values]])
    """For `{for:NAME}`: the values of every repetition; none leaves the text out."""
    tables: Mapping[str, PageTable | Sequence[PageTable]] = field(default_factory=dict[str, PageTable])
    """By name; several under one name are shown one after the other, each with its own values in the caption."""
    code: Mapping[str, str] = field(default_factory=dict[str, str])
    """Source, and what programs printed, by name."""


@dataclass(frozen=True)
class Piece:
    """A piece of a template: its kind, the name in its place, and its lines."""

    kind: str
    name: str
    lines: Sequence[str]
    repeat: str = ""
    """The name in its {for:…}."""

    @property
    def parts(self) -> dict[str, str]:
        """The lines by what they are for; the first is `""`: the caption, or the claim."""
        parts: dict[str, str] = {}
        for line in self.lines:
            found = _PART.fullmatch(line)
            parts[found[1] if found else ""] = found[2] if found else line
        return parts


SECTIONS = ("principle", "code", "setup", "results", "analysis")
"""What the sections under ## are, in every lab."""


def read_template(package: str, lang: str) -> str:
    """The template of a lab's page."""
    return (resources.files(package) / "page" / f"{lang}.md").read_text(encoding="utf-8")


def within(template: str, lab: str, whole: bool) -> str:
    """A template with sections of a lab's in its places {lab:principle}; those in {whole:results} only if `whole`.

    >>> within("{lab:principle}", "# A\\n## Principle\\nText\\n## Code\\nMore", whole=False)
    'Text'
    """
    sections: dict[str, str] = dict(
        zip(SECTIONS, re.split(r"^## .*$", lab, flags=re.MULTILINE)[1:], strict=False)
    )

    def section(found: re.Match[str]) -> str:
        return sections[found[2]].strip() if found[1] == "lab" or whole else ""

    return re.sub(r"\{(lab|whole):(\w+)\}", section, template)


def pieces(template: str) -> Iterator[Piece]:
    """The pieces of a template in their order.

    >>> [(each.kind, each.name, each.lines) for each in pieces("# A\\n\\n{figure:f}\\n: A line.\\n: alt: B")]
    [('title', '', ['A']), ('figure', 'f', ['A line.', 'alt: B'])]
    """
    lines = iter([*template.splitlines(), ""])
    for first in lines:
        if not first:
            continue
        if first.startswith("```"):
            inside: list[str] = []
            for line in lines:
                if line == "```":
                    break
                inside.append(line)
            yield Piece(first[3:], "", ["\n".join(inside)])
        else:
            block = [first]
            for line in lines:
                if not line:
                    break
                block.append(line)
            yield from _of_block(block)


def _of_block(block: list[str]) -> Iterator[Piece]:
    repeat, first = _repeated(block[0])
    if first.startswith("#"):
        level, _, text = first.partition(" ")
        yield Piece("title" if level == "#" else level, "", [text], repeat)
        if block[1:]:
            yield from _of_block(block[1:])
    elif place := _PLACE.fullmatch(first):
        yield Piece(place[1], place[2], [line.removeprefix(": ") for line in block[1:]], repeat)
    elif first.strip("{}") in SHARED:
        yield Piece(first.strip("{}"), "", [], repeat)
    elif first.startswith("- "):
        yield Piece("list", "", block)
    else:
        yield Piece("text", "", ["\n".join([first, *block[1:]])], repeat)


def _repeated(line: str) -> tuple[str, str]:
    found = _FOR.match(line)
    return (found[1], line[found.end() :]) if found else ("", line)


def _named(piece: Piece, values: Values) -> str:
    """The name in a piece's place, its own values filled in."""
    return _NAMED.sub(lambda found: str(values[found[1]]), piece.name)


@dataclass(frozen=True)
class Page:
    """Everything that fills a template."""

    content: Content
    findings: Mapping[str, Sequence[Finding]]
    """By name: none where the measurements cannot answer, several where a claim is made about several things."""
    pictures: Pictures
    words: Words
    shared: Mapping[str, Sequence[Block]]
    """The blocks of the places that all labs share, by name."""

    def document(self, template: str) -> tuple[Document, dict[str, Table]]:
        """The page, and its tables by name: the first, where a name has several."""
        title, blocks, tables = "", list[Block](), dict[str, Table]()
        for piece in pieces(template):
            for values in self._repetitions(piece.repeat):
                if piece.kind == "title":
                    title = self._filled(piece.lines[0], values)
                    continue
                made = self._blocks(piece, values)
                if made and isinstance(made[0], Table):
                    tables.setdefault(piece.name, made[0])
                blocks += made
        return Document(title, self.words.lang, blocks), tables

    def _repetitions(self, name: str) -> Sequence[Values]:
        """The values with which a piece is repeated."""
        own = self.content.values
        return [{**own, **values} for values in self.content.each[name]] if name else [own]

    def _filled(self, text: str, values: Values) -> str:
        return _Filler(self.words).vformat(text, (), values)

    def _blocks(self, piece: Piece, values: Values) -> Sequence[Block]:
        """The blocks of one piece."""
        kind, parts = piece.kind, piece.parts
        name = _named(piece, values)
        if kind in SHARED:
            return self.shared[kind]
        if kind == "figure":
            caption, alt = (self._filled(parts[part], values) for part in ("", "alt"))
            return [self.pictures.figure(name, caption, alt)]
        if kind == "table":
            return self._tables(piece, values)
        if kind in ("code", "output"):
            language = "python" if kind == "code" else "text"
            return [Code(self.content.code[name], self._filled(parts.get("", ""), values), language)]
        if kind == "finding":
            return [self._judgement(finding, parts) for finding in self.findings[name]]
        if kind == "list":
            return [Bullets(items)] if (items := list(self._items(piece.lines))) else []
        text = self._filled(piece.lines[0], values)
        if kind.startswith("#"):
            return [Heading(text, len(kind))]
        if kind == "text":
            return [Paragraph(text)]
        return [Formula(text) if kind == "formula" else Code(text, language=kind)]

    def _items(self, lines: Sequence[str]) -> Iterator[str]:
        for line in lines:
            repeat, text = _repeated(line.removeprefix("- "))
            for values in self._repetitions(repeat):
                yield self._filled(text, values)

    def _tables(self, piece: Piece, values: Values) -> list[Block]:
        """The tables of a name."""
        caption, *header = piece.lines
        given = self.content.tables[piece.name]
        return [
            Table(
                self._filled(caption, {**values, **table.values}),
                list(self._header(header[0], {**values, **table.values})),
                [table.shown(number, self.words) for number in range(len(table.rows))],
                table.right,
            )
            for table in ([given] if isinstance(given, PageTable) else given)
        ]

    def _header(self, line: str, values: Values) -> Iterator[str]:
        for column in line.strip("| ").split(" | "):
            repeat, text = _repeated(column)
            for own in self._repetitions(repeat):
                yield self._filled(text, {**values, **own})

    def _judgement(self, finding: Finding, parts: Mapping[str, str]) -> Judgement:
        """A finding in words, with the explanation that follows its verdict.

        No cause is given for times that a busy machine disturbed, and none for a verdict that the lab has no words for.
        """
        words, pairs = self.words, finding.pairs
        paired = (
            words(f"analysis.pairs_by_{pairs.by}", agreeing=pairs.agreeing, count=pairs.count)
            if pairs
            else ""
        )
        if finding.other_work:
            reason = words("analysis.busy", part=finding.other_work)
        elif finding.verdict == "undecided" and "undecided" not in parts:
            reason = words("analysis.undecided")
        else:
            reason = self._filled(parts[finding.verdict], finding.numbers)
        return Judgement(
            finding.verdict,
            words(f"verdict.{finding.verdict}"),
            self._filled(parts[""], finding.numbers),
            self._filled(parts["numbers"], finding.numbers) + paired,
            reason,
        )


class _Filler(Formatter):
    """Fills places as `str.format` does; writes names in the page's language, and small numbers in powers of ten."""

    def __init__(self, words: Words) -> None:
        self._words = words

    def format_field(self, value: Any, format_spec: str) -> str:
        """One place."""
        return cell(value, format_spec, self._words)
