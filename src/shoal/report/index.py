"""The list of all reports: `reports/index.html`, written again after each report, and links from a page to others.

Every page says its title, language and result in its head, so that the list needs nothing but the pages. A folder
without such a page is left out; a file `index.html` that shoal did not write stays as it is.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path

from shoal.errors import ShoalError
from shoal.events.folder import write_whole
from shoal.report.document import Document, Heading, Link, Links, Paragraph
from shoal.report.html import to_html
from shoal.report.run_table import ListedRun, listed_runs
from shoal.words import LANGUAGES, Words, read_words

REPORTS, RUNS, PAGE, INDEX = "reports", "runs", "report.html", "index.html"
NEWEST_RUNS = 20
HEAD_BYTES = 8192
"""The title and the result of a page are within its first bytes, before its style."""


class PageHead(HTMLParser):
    """The head of a page, from the beginning of its text."""

    def __init__(self, start: str) -> None:
        super().__init__()
        self.title, self.lang, self._named, self._in_title = "", LANGUAGES[0], dict[str, str](), False
        self.feed(start)
        self.title = " ".join(self.title.split())
        self.result = self._named.get("description", "")
        self.is_ours = self._named.get("generator") == "shoal"
        """Whether shoal wrote it."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take the language, and what the page says of itself under a name."""
        given = {name: value or "" for name, value in attrs}
        self._in_title = tag == "title"
        if tag == "html" and given.get("lang", "").startswith("zh"):
            self.lang = "zh"
        if tag == "meta":
            self._named[given.get("name", "")] = given.get("content", "")

    def handle_endtag(self, tag: str) -> None:
        """The title is complete."""
        self._in_title = False

    def handle_data(self, data: str) -> None:
        """Take the title."""
        self.title += data * self._in_title


def head_of(page: Path) -> PageHead | None:
    """The head of a page; None where there is no page with a title."""
    try:
        if not page.is_file():
            return None
        with page.open("rb") as file:
            start = file.read(HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    head = PageHead(start)
    return head if head.title else None


def write_index(report: Path) -> None:
    """List all reports beside this one, if it is in reports/; a list that cannot be written is left out."""
    newest = head_of(report / PAGE)
    if not _is_listed(report) or newest is None:
        return
    index = report.parent / INDEX
    there = head_of(index)
    if index.exists() and not (there and there.is_ours):
        return
    words = read_words(newest.lang, "shoal.report")
    with suppress(ShoalError, OSError):
        write_whole(index, to_html(_document(report.parent, words)))


def linked(document: Document, report: Path) -> Document:
    """The document with links to the list of all reports, and from a run to the report that it was made for."""
    if not _is_listed(report):
        return document
    words = read_words(document.lang, "shoal.report")
    return replace(document, blocks=[Links([Link(words("list.all"), f"../{INDEX}")]), *document.blocks])


def link_to_owner(report: Path, run: Path, lang: str) -> Iterator[Link]:
    """A link from the page of a run to the comparison or lab in whose folder the run is."""
    words = read_words(lang, "shoal.report")
    owner = run.resolve().parent.parent / PAGE
    if head_of(owner) is not None:
        yield Link(words("list.belongs"), os.path.relpath(owner, report.resolve()))


def _is_listed(report: Path) -> bool:
    return report.resolve().parent == Path(REPORTS).resolve()


def _document(folder: Path, words: Words) -> Document:
    found = [(page, head_of(page)) for page in folder.glob(f"*/{PAGE}")]
    pages = sorted(
        ((page.stat().st_mtime, page, head) for page, head in found if head),
        reverse=True,
        key=lambda each: each[0],
    )
    reports = [
        Link(
            head.title,
            f"{page.parent.name}/{PAGE}",
            _line(datetime.fromtimestamp(time_s), head.result, words),
        )
        for time_s, page, head in pages
    ]
    runs: list[ListedRun] = []
    with suppress(ShoalError, OSError):
        runs, _ = listed_runs(Path(RUNS), newest=NEWEST_RUNS)
    blocks = [Heading(words("list.reports")), Links(reports)]
    if runs:
        links = [
            Link(run.path.name, os.path.relpath(run.path, folder) + "/", _run_line(run, words))
            for run in reversed(runs)
        ]
        blocks += [
            Heading(words("list.runs")),
            Paragraph(words("list.more", count=len(runs), folder=RUNS)),
            Links(links),
        ]
    return Document(words("list.title"), words.lang, blocks)


def _line(when: datetime, result: str, words: Words) -> str:
    time = f"{when:%Y-%m-%d %H:%M}"
    return words("list.result", when=time, result=result) if result else time


def _run_line(run: ListedRun, words: Words) -> str:
    values = run.values
    parts = [words("list.run", **{key: values[key] for key in ("model", "data", "strategy", "status")})]
    if values["accuracy"] is not None:
        parts += [words("list.accuracy", accuracy=f"{100 * values['accuracy']:.2f} %")]
    return _line(run.began, words.listed(parts), words)
