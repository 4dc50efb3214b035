"""Assemble the pages of the site in `build/site-pages`, for mkdocs to build: `make docs`.

    python tools/guide.py && mkdocs build --strict

The pages in `docs/` are plain Markdown that links as a code host does. Here each language gets every page (the
English text, with a note, where a translation is missing), a link to a file that is not a page leads to a copy of that
file, and Chinese headings get the anchors of the English ones.
"""

import re
import shutil
from functools import cache
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "site-pages"
PROJECT = {
    "README.md": "index.md",
    "docs/README.md": "index.md",
    "docs/architecture.md": "project/architecture.md",
    "docs/benchmarks.md": "project/benchmarks.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changes.md",
}
"""Files outside `docs/en` and their place in each language; the README's place is the first page."""
NOT_TRANSLATED = {"en": "", "zh": "> 本页尚无中文译文，以下是英文原文。\n\n"}
LINK = re.compile(r"\]\(([^)#:\s]*)(#[^)\s]*)?\)")
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^(#+ )(.*)$", re.MULTILINE)


def assemble() -> None:
    """Write every page of both languages, the files that they link to, and figures and styles."""
    shutil.rmtree(OUT, ignore_errors=True)
    for path in (ROOT / "docs").iterdir():
        if path.suffix == ".svg" or path.name in ("assets", "figures"):
            (shutil.copytree if path.is_dir() else shutil.copy)(path, _made(OUT / path.name))
    english = [page.relative_to(ROOT).as_posix() for page in (ROOT / "docs/en").rglob("*.md")]
    for lang, note in NOT_TRANSLATED.items():
        for name in [*english, *(name for name in PROJECT if not name.endswith("README.md"))]:
            source = translated(name, lang)
            text = (ROOT / source).read_text(encoding="utf-8")
            if source == name and note:
                text = HEADING.sub(rf"\g<0>\n\n{note}", text, count=1)
            _made(OUT / place(name, lang)).write_text(for_site(text, source, name, lang), encoding="utf-8")


def for_site(text: str, source: str, english: str, lang: str) -> str:
    """A page's text with the links and anchors of the site; code blocks stay as they are."""

    def link(found: re.Match[str]) -> str:
        path, anchor = found[1], found[2] or ""
        target = normpath(join(dirname(source), path)) if path else source
        if not path.startswith("http") and (ROOT / target).is_file():
            here, there = place(english, lang), place(target, lang)
            if there.startswith("files/"):
                shutil.copy(ROOT / target, _made(OUT / there))
            if there.startswith("files/") or target in ("README.md", "docs/README.md"):
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
    return path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}.txt"


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


if __name__ == "__main__":
    assemble()
