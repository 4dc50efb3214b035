from pathlib import PurePosixPath

from markdown_it import MarkdownIt

from shoal.report.document import (
    Bullets,
    Code,
    Document,
    Figure,
    Folded,
    Heading,
    Judgement,
    Paragraph,
    Table,
)
from shoal.report.markdown import to_markdown

WILD = "a_b * c <script> [x](y) | 1. & `co|de` **strong**"


def rendered(*blocks):
    """What a reader of the Markdown sees, by an independent renderer."""
    return MarkdownIt("commonmark").enable("table").render(to_markdown(Document("T", "en", blocks)))


def test_wild_text_stays_text_everywhere():
    seen = "a_b * c &lt;script&gt; [x](y) | 1. &amp; "
    html = rendered(Paragraph(WILD), Bullets([WILD]), Table("c", [WILD], [[WILD]]), Heading(WILD))
    assert html.count(seen) == 5
    assert html.count("<code>co|de</code>") == 5
    assert html.count("<strong>strong</strong>") == 5
    assert "<script>" not in html


def test_text_that_begins_like_a_list_is_a_paragraph():
    assert "<p>1. first</p>" in rendered(Paragraph("1. first"))
    assert "<p># no heading</p>" in rendered(Paragraph("# no heading"))
    assert "<p>- no list</p>" in rendered(Paragraph("- no list"))


def test_code_with_fences_stays_whole():
    assert "```\nx\n```" in rendered(Code("```\nx\n```\n"))


def test_numbers_stand_to_the_right():
    html = rendered(Table("c", ["name", "time (s)"], [["gd", "1.5"]], frozenset({1})))
    assert '<td style="text-align:right">1.5</td>' in html


def test_a_figure_is_linked_with_its_words():
    html = rendered(Figure(PurePosixPath("figures/a.png"), "", "the caption", "the picture"))
    assert '<img src="figures/a.png" alt="the picture" />' in html
    assert "<em>the caption</em>" in html


def test_a_finding_shows_verdict_claim_numbers_and_reason():
    html = rendered(Judgement("fails", "does not hold", "the claim", "the numbers", "the reason"))
    for words in ("<strong>does not hold</strong>: the claim", "the numbers", "the reason"):
        assert words in html


def test_a_folded_section_is_there_in_full():
    html = rendered(Folded("more", [Paragraph("inside"), Judgement("holds", "holds", "a", "b")]))
    assert "<h2>more</h2>\n<p>inside</p>" in html
    assert "<strong>holds</strong>: a" in html


def test_a_chinese_finding_has_a_chinese_colon():
    document = Document("t", "zh", [Judgement("holds", "成立", "论断。", "数字。")])
    assert "- **成立**：论断。" in to_markdown(document)


def test_code_in_a_caption_is_code():
    html = rendered(Figure(PurePosixPath("a.png"), "", "as `shoal graph` draws it", "picture"))
    assert "<em>as <code>shoal graph</code> draws it</em>" in html
