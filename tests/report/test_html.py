import base64
import re
from html.parser import HTMLParser
from pathlib import PurePosixPath

from shoal.report.document import (
    Bullets,
    Code,
    Document,
    Figure,
    Formula,
    Heading,
    Judgement,
    Paragraph,
    Table,
)
from shoal.report.html import to_html

WILD = 'a < b & "c" <script>alert(1)</script> `x<y>`'
PNG = b"\x89PNG not really"
BLOCKS = [
    Heading(WILD),
    Paragraph(WILD),
    Bullets([WILD]),
    Formula(WILD),
    Code(WILD, WILD),
    Table(WILD, [WILD], [[WILD]], frozenset({0})),
    Figure(PurePosixPath("a.png"), PNG, WILD, WILD),
    Judgement("holds", WILD, WILD, WILD, WILD),
]


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


def test_wild_text_is_shown_and_never_run():
    reader = read(Document(WILD, "en", BLOCKS))
    assert "script" not in reader.tags
    assert "".join(reader.text).count("<script>alert(1)</script>") == 16
    assert ("alt", WILD) in reader.attributes


def test_the_page_needs_nothing_else():
    page = to_html(Document("t", "en", BLOCKS))
    assert not re.search(r"https?://|<link|<script|@import|url\(", page)
    assert base64.b64encode(PNG).decode() in page


def test_a_drawing_in_lines_stays_one():
    page = to_html(Document("t", "en", [Figure(PurePosixPath("a.svg"), b"<svg/>", "", "")]))
    assert f"data:image/svg+xml;base64,{base64.b64encode(b'<svg/>').decode()}" in page


def test_the_page_says_its_language_and_follows_the_readers_light():
    page = to_html(Document("标题", "zh", [Paragraph("正文")]))
    assert '<html lang="zh-Hans">' in page
    assert "prefers-color-scheme: dark" in page
    assert "标题" in page
    assert "正文" in page
