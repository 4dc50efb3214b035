"""`shoal docs`: find and print the pages of the guide, which are part of the package."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flags
from shoal.errors import ConfigError, ShoalError, unknown

MOST = 10
"""Pages that a search shows."""
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class DocsFlags(Flags):
    """The language of the pages."""

    lang: Literal["en", "zh"] = "en"
    """Language of the pages; a page without a translation is shown in English."""


@dataclass(frozen=True)
class Page:
    """A page: its name, such as `tutorial/who-waits`, and its Markdown."""

    name: str
    markdown: str

    @property
    def headings(self) -> list[str]:
        """Its headings, the title first; a comment in a block of code is none."""
        return _HEADING.findall(re.sub(r"^ *```.*?^ *```", "", self.markdown, flags=re.DOTALL | re.MULTILINE))

    def place(self, words: str) -> tuple[int, str]:
        """How well it answers, and the heading or line that does: by title, heading, the words together, or apart.

        >>> page = Page("ring", "# Ring\\n\\nTwo phases.\\n\\n## Cost of a ring\\n\\nA ring sends 2(N - 1)/N.")
        >>> page.place("ring"), page.place("Cost"), page.place("a ring sends"), page.place("N phases")
        ((1000003, 'Ring'), (100001, 'Cost of a ring'), (1001, 'A ring sends 2(N - 1)/N.'), (1, 'Two phases.'))
        >>> page.place("tree")
        (0, '')
        """
        together, body = words.casefold(), self.markdown.casefold()
        wanted = together.split()
        times = min(body.count(word) for word in wanted)
        if not times:
            return 0, ""
        for number, heading in enumerate(self.headings):
            if all(word in heading.casefold() for word in wanted):
                return (100_000 if number else 1_000_000) + times, heading
        if together not in body:
            points, line = self.place(max(wanted, key=len))
            return max(1, points // 1000), line
        line = next((line for line in self.markdown.splitlines() if together in line.casefold()), "")
        return 1000 + times, line.strip(" |")


def run(given: Given[DocsFlags]) -> int:
    """Find and print the pages of the guide.

    Without WORD: all pages. With the name of a page: the page, as Markdown. With other words: the pages that have all
    of them, those with the words in a heading first.

    Start with:  shoal docs first-run
    """
    pages = {page.name: page for page in read_pages(given.flags.lang)}
    words = " ".join(given.words)
    if not words:
        text.show(text.rows({page.name: page.headings[0] for page in pages.values()}))
        text.next_step("shoal", "docs", "start/first-run")
        return 0
    name = words.removeprefix("docs/").removeprefix("en/").removeprefix("zh/").removesuffix(".md")
    named = [page for page in pages.values() if name in (page.name, page.name.rpartition("/")[2])]
    if named:
        text.show(named[0].markdown.rstrip())
        return 0
    found = sorted(
        ((*page.place(words), page.name) for page in pages.values()), key=lambda each: (-each[0], each[2])
    )
    shown = {name: line for points, line, name in found[:MOST] if points}
    if not shown:
        raise ConfigError(
            unknown("page", words, pages), "`shoal docs` lists the pages; --lang zh finds 中文."
        )
    text.show(
        text.rows({name: line if len(line) <= 100 else f"{line[:100]}…" for name, line in shown.items()})
    )
    text.next_step("shoal", "docs", next(iter(shown)), *(["--lang=zh"] if given.flags.lang == "zh" else []))
    return 0


def read_pages(lang: str) -> Iterator[Page]:
    """Every page, in the language where it is translated; in the package, or in the checkout that it is in."""
    homes = (text.PACKAGE / "docs", text.PACKAGE.parents[1] / "docs")
    docs = next((home for home in homes if (home / "en").is_dir()), None)
    if docs is None:
        raise ShoalError("this installation has no pages", "Install shoal from its wheel or a checkout.")
    names = [path.relative_to(docs / "en") for path in sorted((docs / "en").rglob("*.md"))]
    english = {name.as_posix(): docs / "en" / name for name in names}
    english |= {name: docs / name for name in ("architecture.md", "benchmarks.md")}
    for name, path in english.items():
        translated: Path = docs / lang / name
        page = translated if translated.is_file() else path
        yield Page(name.removesuffix(".md"), page.read_text(encoding="utf-8"))


COMMAND = Command("docs", run, DocsFlags, words="[WORD…]")
