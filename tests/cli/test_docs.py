"""`shoal docs`: the pages that ship with the package are listed, found and printed."""

import pytest

from shoal.cli import text
from shoal.cli.docs import Page
from shoal.cli.main import main


def said(capsys, *words):
    assert main(["docs", *words]) == 0
    return capsys.readouterr().out


def test_without_a_word_every_page_is_listed(capsys):
    shown = {line.split()[0] for line in said(capsys).splitlines() if line.startswith("  ")}
    pages = {path.relative_to(PAGES).with_suffix("").as_posix() for path in PAGES.rglob("*.md")}
    assert pages | {"architecture", "benchmarks"} <= shown


PAGES = text.PACKAGE.parents[1] / "docs/en"


@pytest.mark.parametrize("name", ["tutorial/who-waits", "who-waits", "docs/en/tutorial/who-waits.md"])
def test_a_page_is_printed_by_its_name_or_path(name, capsys):
    assert said(capsys, name) == (PAGES / "tutorial/who-waits.md").read_text(encoding="utf-8")


def test_a_page_is_shown_in_chinese_if_it_is_translated_and_otherwise_in_english(capsys):
    assert said(capsys, "who-waits", "--lang", "zh").startswith("# 谁在等待？")
    assert said(capsys, "combinations", "--lang", "zh").startswith("# Combinations")


@pytest.mark.parametrize(
    ("words", "page"),
    [
        (["parameter", "server"], "server"),
        (["out of memory"], "memory"),
        (["all-reduce"], "start/glossary"),
        (["误差反馈", "--lang", "zh"], "tutorial/less-communication"),
    ],
)
def test_words_find_the_pages_that_have_all_of_them(words, page, capsys):
    found = [line.split()[0] for line in said(capsys, *words).splitlines() if line.startswith("  ")]
    assert page in found


def test_a_title_comes_before_a_heading_and_a_heading_before_text(capsys):
    found = [line.split()[0] for line in said(capsys, "gradient", "compression").splitlines()]
    assert found[0] == "compression"
    pages = [Page("text", "# One\nring"), Page("title", "# Ring"), Page("heading", "# One\n## Ring")]
    best = sorted(pages, key=lambda page: page.place("ring"), reverse=True)
    assert [page.name for page in best] == ["title", "heading", "text"]


def test_words_of_no_page_are_an_error(capsys):
    assert main(["docs", "gradiant"]) == 2
    assert "gradiant" in capsys.readouterr().err
