"""The guide: both languages agree, every link of the site leads somewhere, and no page asks another server."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENGLISH, CHINESE = ROOT / "docs/en", ROOT / "docs/zh"
TRANSLATED = sorted(CHINESE.rglob("*.md"))
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def parts(page):
    """What both languages share: levels of headings, figures, sizes of tables and lists, and code without comments."""
    text = page.read_text(encoding="utf-8")
    prose = FENCE.sub("", text)
    code = [(language, re.sub(r"\s+# .*", "", block)) for language, block in FENCE.findall(text)]
    figures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", prose)
    return {
        "headings": re.findall(r"^(#+) ", prose, re.MULTILINE),
        "figures": [re.sub(r"\.zh(-CN)?\.svg$", ".svg", figure) for figure in figures],
        "rows": [len(re.findall(rf"^{kind} ", prose, re.MULTILINE)) for kind in (r"\d\.", "-", r"\|")],
        "code": code,
    }


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: page.stem)
def test_a_page_has_the_same_parts_in_both_languages(page):
    assert parts(page) == parts(ENGLISH / page.relative_to(CHINESE))


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: page.stem)
def test_a_chinese_paragraph_is_one_line(page):
    """A line break between Chinese characters would be a space."""
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    assert re.findall(r"[^\x00-\x7f]\n(?![\n|#!]|- |\d\. |> )\S.*", prose) == []


def test_every_page_is_in_the_navigation():
    named = set(re.findall(r"^ +- ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {page.relative_to(ENGLISH).as_posix() for page in ENGLISH.rglob("*.md")}
    assert pages == {name for name in named if not name.startswith("project/")}


def test_every_figure_is_on_a_page():
    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    assert [
        path.name for path in (ROOT / "docs/figures").iterdir() if f"figures/{path.name})" not in text
    ] == []


TUTORIAL = sorted((ENGLISH / "tutorial").glob("*.md"))


@pytest.mark.parametrize("page", TUTORIAL, ids=lambda page: page.stem)
def test_a_page_of_the_tutorial_has_a_command_and_a_figure_and_is_short(page):
    assert len(page.read_text(encoding="utf-8").splitlines()) <= 80
    assert len(parts(page)["figures"]) == 1
    assert FENCE.search(page.read_text(encoding="utf-8"))


@pytest.mark.long
@pytest.mark.skipif(not importlib.util.find_spec("material"), reason="mkdocs-material is not installed")
def test_the_site_builds_without_a_warning_and_asks_no_other_server(tmp_path):
    """Broken links and anchors, and pages outside of the navigation, are warnings of mkdocs, and so errors."""
    subprocess.run([sys.executable, ROOT / "tools/guide.py", tmp_path], check=True)
    pages = [*(tmp_path / "site").rglob("*.html")]
    names = {page.relative_to(tmp_path / "site").as_posix() for page in pages}
    assert {"index.html", "zh/index.html", "zh/tutorial/who-waits.html", "zh/combinations.html"} <= names
    loaded = r"<(?:link|script|img|iframe)\b[^>]*\b(?:href|src)=.?(?:https?:)?//[^\s>]*"
    assert [found for page in pages for found in re.findall(loaded, page.read_text(encoding="utf-8"))] == []
    assert sum(path.stat().st_size for path in (tmp_path / "site").rglob("*") if path.is_file()) <= 15e6
