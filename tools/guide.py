"""Build the guide as a site, `FOLDER/site` (default `build/site`): `make docs`.

    python tools/guide.py [FOLDER]

The pages in `docs/` are plain Markdown that links as a code host does. Here each language gets every page (the
English text, with a note, where a translation is missing), a link to a file that is not a page leads to a copy of that
file, and Chinese headings get the anchors of the English ones. Each language is a site with a search of its own,
English at the root and Chinese in `zh`; a page's link to the other language leads to the same page.
"""

import re
import shutil
import sys
from functools import cache
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parents[1]
BUILD = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "build"
PAGES, SITE = BUILD / "site-pages", BUILD / "site"
PROJECT = {
    "README.md": "index.md",
    "docs/README.md": "index.md",
    "docs/architecture.md": "project/architecture.md",
    "docs/benchmarks.md": "project/benchmarks.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changes.md",
}
"""Files outside `docs/en` and their place in each language; the README's place is the first page."""
NAMES = {"en": "English", "zh": "中文"}
SECTIONS = {
    "Start": "开始",
    "Tutorial": "教程",
    "How-to": "操作指南",
    "Extend": "扩展",
    "Labs": "实验",
    "Reference": "参考",
    "Project": "项目",
}
NOT_TRANSLATED = {"en": "", "zh": "> 本页尚无中文译文，以下是英文原文。\n\n"}
LINK = re.compile(r"\]\(([^)#:\s]*)(#[^)\s]*)?\)")
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^(#+ )(.*)$", re.MULTILINE)


def assemble() -> None:
    """Write every page of both languages, the files that they link to, and figures and styles."""
    shutil.rmtree(PAGES, ignore_errors=True)
    english = [page.relative_to(ROOT).as_posix() for page in (ROOT / "docs/en").rglob("*.md")]
    for lang, note in NOT_TRANSLATED.items():
        for folder in ("assets", "figures"):
            shutil.copytree(ROOT / "docs" / folder, PAGES / lang / folder)
        for name in [*english, *(name for name in PROJECT if not name.endswith("README.md"))]:
            source = translated(name, lang)
            text = (ROOT / source).read_text(encoding="utf-8")
            if source == name and note:
                text = HEADING.sub(rf"\g<0>\n\n{note}", text, count=1)
            text = for_site(text, source, name, lang)
            if name == "CHANGELOG.md":  # it has every word, and would be found first
                text = f"---\nsearch:\n  boost: 0.1\n---\n{text}"
            _made(PAGES / place(name, lang)).write_text(text, encoding="utf-8")


def for_site(text: str, source: str, english: str, lang: str) -> str:
    """A page's text with the links and anchors of the site; code blocks stay as they are."""

    def link(found: re.Match[str]) -> str:
        path, anchor = found[1], found[2] or ""
        target = normpath(join(dirname(source), path)) if path else source
        if not path.startswith("http") and (ROOT / target).is_file():
            here, there = place(english, lang), place(target, lang)
            if not target.endswith(".md") or "/files/" in there:
                shutil.copy(ROOT / target, _made(PAGES / there))
            if "/files/" in there or target in ("README.md", "docs/README.md"):
                anchor = ""
            path = relpath(there, dirname(here)) if path else ""
            anchor = anchor and f"#{english_anchor(target, anchor[1:], lang)}"
        return f"]({path}{anchor})"

    parts = FENCE.split(text)
    if source != english:
        ids = iter(anchors(english))
        parts[::2] = [
            HEADING.sub(lambda title: f"{title[0]} {{ #{next(ids)} }}", part) for part in parts[::2]
        ]
    parts[::2] = [LINK.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def place(path: str, lang: str) -> str:
    """Where a file of the repository is among the pages of a language; what is no page is a copy with all readers."""
    if path in PROJECT:
        return f"{lang}/{PROJECT[path]}"
    if path.startswith(("docs/en/", "docs/zh/")):
        return f"{lang}/{path[len('docs/en/') :]}"
    return f"{lang}/{path[len('docs/') :]}" if path.startswith("docs/") else f"{lang}/files/{path}.txt"


def translated(path: str, lang: str) -> str:
    """The page in the language, if there is one, and otherwise the page itself."""
    other = path.replace("docs/en/", f"docs/{lang}/", 1)
    return other if (ROOT / other).is_file() else path


def english_anchor(target: str, anchor: str, lang: str) -> str:
    """The anchor of the English heading that stands where the heading with this anchor does."""
    english = target.replace(f"docs/{lang}/", "docs/en/", 1)
    return dict(zip(anchors(target), anchors(english), strict=True)).get(anchor, anchor)


@cache
def anchors(page: str) -> list[str]:
    """The anchors of a page's headings, as code hosts make them."""
    prose = "".join(FENCE.split((ROOT / page).read_text(encoding="utf-8"))[::2])
    return [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for _, title in HEADING.findall(prose)]


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


class Language:
    """What mkdocs is told while it builds the site of one language."""

    def __init__(self, lang: str) -> None:
        self.lang = lang

    def on_nav(self, nav: Any, **_: Any) -> None:
        """Name the sections in the language."""
        for section in nav.items:
            section.title = SECTIONS[section.title] if self.lang == "zh" else section.title

    def on_page_context(self, context: Any, *, page: Any, config: Any, **_: Any) -> None:
        """Link to the same page in the other language."""
        root = {"en": "", "zh": "zh/"} if self.lang == "en" else {"en": "../", "zh": ""}
        config.extra["alternate"] = [
            {"name": name, "lang": lang, "link": root[lang] + page.url} for lang, name in NAMES.items()
        ]


def build_site(lang: str) -> None:
    """Build the pages of a language; a warning is an error."""
    site = SITE if lang == "en" else SITE / lang
    config: Any = load_config(
        str(ROOT / "mkdocs.yml"), docs_dir=str(PAGES / lang), site_dir=str(site), strict=True
    )
    config.theme["language"] = lang
    config.plugins["material/search"].config["lang"] = ["en"] if lang == "en" else ["zh", "en"]
    rules = Language(lang)
    config.plugins.events["nav"].append(rules.on_nav)
    config.plugins.events["page_context"].append(rules.on_page_context)
    config.plugins.run_event("startup", command="build", dirty=False)
    build(config)


if __name__ == "__main__":
    assemble()
    for language in NAMES:
        build_site(language)
