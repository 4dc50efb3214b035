import re
from html.parser import HTMLParser
from importlib import resources
from pathlib import PurePosixPath

from shoal.report.document import (
    Bullets,
    Code,
    Document,
    Figure,
    Folded,
    Formula,
    Heading,
    Judgement,
    Paragraph,
    Table,
)
from shoal.report.html import to_html
from shoal.report.svg import VARIABLES

WILD = 'a < b & "c" <script>alert(1)</script> `x<y>`'
SVG = '<svg viewBox="0 0 9 9"><path d="M0 0"/></svg>'
BLOCKS = [
    Heading(WILD),
    Paragraph(WILD),
    Bullets([WILD]),
    Formula(WILD),
    Code(WILD, WILD),
    Table(WILD, [WILD], [[WILD]], frozenset({0})),
    Figure(PurePosixPath("a.png"), SVG, WILD, WILD),
    Judgement("holds", WILD, WILD, WILD, WILD),
    Folded(WILD, [Paragraph(WILD)]),
]


STYLE = (resources.files("shoal.report") / "page.css").read_text(encoding="utf-8")


def rule(selector, style=STYLE):
    """The declarations of a selector's first rule."""
    return re.search(rf"(?m)(?:^|[\s]){re.escape(selector)} {{([^}}]*)}}", style)[1].strip()


def media(query):
    """The rules for a medium."""
    return re.search(rf"(?ms)^@media {re.escape(query)} {{\n(.*?)^}}", STYLE)[1]


class Reader(HTMLParser):
    VOID = ("meta", "img")

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text, self.attributes = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(document):
    reader = Reader()
    reader.feed(to_html(document))
    reader.close()
    assert reader.open == []
    return reader


def test_a_folded_section_shows_its_title_and_holds_its_blocks():
    page = to_html(Document("t", "en", [Folded("more", [Paragraph("inside")])]))
    summary, inside = re.search(r"<details>(.*)</summary>(.*)</details>", page, re.DOTALL).groups()
    assert ("more" in summary, "inside" in inside) == (True, True)


def test_wild_text_is_shown_and_never_run():
    reader = read(Document(WILD, "en", BLOCKS))
    assert "script" not in reader.tags
    assert "".join(reader.text).count("<script>alert(1)</script>") == 18
    assert ("aria-label", WILD) in reader.attributes


def test_the_page_needs_nothing_else():
    page = to_html(Document("t", "en", BLOCKS))
    assert not re.search(r"https?://|<link|<script|@import|url\(", page)
    assert '<path d="M0 0"/>' in page


def html_of(*blocks):
    page = to_html(Document("t", "en", blocks))
    return page[page.index("<body>") :]


def test_a_figure_has_a_drawing_for_phones_and_one_for_all_else():
    narrow = SVG.replace("9 9", "4 9")
    html = html_of(Figure(PurePosixPath("a.png"), SVG, "caption", "words", narrow))
    assert '<svg class="wide" style="--tall:1" role="img" aria-label="words" viewBox="0 0 9 9">' in html
    assert '<svg class="narrow" style="--tall:2.25" role="img" aria-label="words" viewBox="0 0 4 9">' in html
    assert rule("svg.narrow", STYLE[: STYLE.index("@media screen and (max-width")]) == "display: none;"
    assert "figure svg.narrow { display: block; }" in media("screen and (max-width: 44rem)")


def test_a_figure_with_one_drawing_scrolls_on_a_phone_instead_of_shrinking():
    html = html_of(Figure(PurePosixPath("a.svg"), SVG, "caption", "words"))
    assert '<div class="sideways" tabindex="0"><svg class="only"' in html
    assert "figure svg.only { max-width: none; }" in media("screen and (max-width: 44rem)")
    assert '<figure class="scrolls">' not in html
    wide = SVG.replace("0 0 9 9", "0 0 460 600")
    assert '<figure class="scrolls">' in html_of(Figure(PurePosixPath("a.svg"), wide, "caption", "words"))
    assert '<figure class="scrolls">' not in html_of(Figure(PurePosixPath("a.svg"), wide, "", "words", SVG))


def test_a_table_that_is_wider_than_a_phone_says_so_and_keeps_its_caption_and_names_in_view():
    header = ["run", "accuracy", "time (s)", "samples/s", "× all cores", "differs by"]
    wide = Table("all runs", header, [["single-1-core", "88.65 %", "1.37", "1,922", "≈ 14.87", "1.1e-03"]])
    html = html_of(wide)
    assert html.index("<figcaption>all runs") < html.index('<div class="sideways" tabindex="0"><table>')
    assert '<figure class="table scrolls">' in html
    assert '<td class="name">single-1-core</td>' in html
    assert '<figure class="table">' in html_of(Table("small", ["run", "time (s)"], [["ddp", "1.37"]]))
    phone = media("screen and (max-width: 44rem)")
    assert ".scrolls figcaption::after { content:" in phone
    assert "position: sticky; left: 0" in phone
    assert "overflow-x: auto" in rule(".sideways, pre")
    assert "var(--shadow)" in rule(".sideways, pre")
    assert "white-space: nowrap" in rule("td.number, td.name")


def test_a_long_line_of_code_is_folded_below_its_indentation_or_scrolls_on_a_phone_and_keeps_its_text():
    html = html_of(Code("if a:\n    b --flag-of-two"))
    assert '<span style="--indent:4ch">    b <span class="whole">--flag-of-two</span>\n</span>' in html
    assert "white-space: pre-wrap; overflow-wrap: break-word" in rule("pre")  # never inside a word that fits
    assert "overflow-x: auto" in rule(".sideways, pre")
    assert "pre:not(.command) { white-space: pre; }" in media("screen and (max-width: 44rem)")
    assert '<pre tabindex="0">' in html
    text = "".join(read(Document("t", "en", [Code("if a:\n\n    b --flag")])).text)
    assert "if a:\n\n    b --flag\n" in text


def test_a_command_is_folded_on_a_phone_too():
    assert '<pre class="command" tabindex="0">' in html_of(Code("shoal lab 1", language="sh"))


def test_a_chinese_character_is_as_wide_as_two_letters_and_chinese_is_broken_anywhere():
    name = "随机划分，四个节点"
    assert f'<td class="name">{name}</td>' in html_of(Table("t", ["比较对象", "差异"], [[name, "2.4"]]))
    assert "scrolls" in html_of(
        Table("t", ["比较对象", "差异"], [[name, "2.4"], ["短", "1,234,567.8 ± 1,234,567.8"]], right=(1,))
    )
    long = "随机划分，四个节点，与使用同样样本的单机比较"
    html = html_of(Table("t", ["比较对象", "差异"], [[long, "2.4"]]))
    assert f"<td>{long}</td>" in html
    assert '<figure class="table">' in html


def test_a_hash_is_broken_instead_of_making_its_table_scroll():
    sha256 = "f215cc2b" * 8
    html = html_of(Table("numbers", ["", ""], [["steps", "6"], ["weights, sha256", sha256]]))
    assert f'<td><span class="hash">{sha256}</span></td>' in html
    assert '<figure class="table">' in html
    assert "word-break: break-all" in rule(".hash")


def test_formulas_and_sentences_have_real_indices():
    html = html_of(
        Formula("wₜ₊₁ = wₜ²        Σ_{j ∈ Bᵢ} a < B_W\nx"), Paragraph("as B_W, `B_W` and trimmed_mean")
    )
    assert "<p>w<sub>t+1</sub> = w<sub>t</sub><sup>2</sup></p>" in html
    assert "<p>Σ<sub>j ∈ B<sub>i</sub></sub> a &lt; B<sub>W</sub></p>\n<p>x</p>" in html
    assert "as B<sub>W</sub>, <code>B_W</code> and trimmed_mean" in html


def test_numbers_stay_with_their_signs():
    assert "± 3 % and 2.4 · 10<sup>−7</sup>" in html_of(Paragraph("± 3 % and 2.4 · 10⁻⁷")).replace(
        "\u00a0", " "
    )
    assert "\u00a03\u00a0%" in html_of(Paragraph("± 3 %"))


def test_the_dark_theme_redefines_every_colour_of_figures_and_print_none():
    dark = media("screen and (prefers-color-scheme: dark)")
    assert [name for name in VARIABLES.values() if f"{name}:" not in dark] == []
    assert STYLE.count("prefers-color-scheme") == 1


def test_print_keeps_together_what_belongs_together():
    printed = media("print")
    for part in (
        "orphans: 3; widows: 3",
        "figure:has(svg)",
        "break-after: avoid",
        "display: table-header-group",
    ):
        assert part in printed


def test_the_page_says_its_language_and_follows_the_readers_light():
    page = to_html(Document("标题", "zh", [Paragraph("正文")]))
    assert '<html lang="zh-Hans">' in page
    assert "prefers-color-scheme: dark" in page
    assert "标题" in page
    assert "正文" in page
