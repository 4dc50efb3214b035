"""Pages of help: no line wider than the terminal, sentences aligned."""

import pytest

from shoal.cli.main import all_commands, main
from shoal.cli.text import caution, paragraph, rows, with_pages

ROWS = {
    "--out DIR": "Folder of the report, which need not exist yet, and of its runs.",
    "a command too long for a column": "What it does, in some words.",
}


def test_a_sentence_continues_below_its_own_beginning(monkeypatch):
    monkeypatch.setenv("COLUMNS", "34")
    assert rows(ROWS).splitlines() == [
        "  --out DIR      Folder of the",
        "                 report, which",
        "                 need not exist",
        "                 yet, and of its",
        "                 runs.",
        "  a command too long for a column",
        "                 What it does, in",
        "                 some words.",
    ]


def test_paragraphs_are_wrapped_and_code_is_not(monkeypatch):
    monkeypatch.setenv("COLUMNS", "34")
    assert paragraph("A sentence that is too long for one line.").count("\n") == 1
    assert paragraph("Usage: shoal thing NAME [OTHER] [flags]").splitlines()[1] == "       [flags]"
    code = "    group.all_reduce(total).wait()   # everywhere\n    done = True"
    assert paragraph(code) == code


PAGES = [
    (),
    *((name,) for name in all_commands()),
    ("data", "partition"),
    ("data", "fetch"),
    ("lab", "3"),
    ("lab", "start"),
]


@pytest.mark.parametrize("command", PAGES, ids=" ".join)
def test_every_page_fits_80_columns(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*command, "--help"]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert len(line) <= 80, line


def test_a_warning_of_torch_comes_without_its_stack_of_cpp(capsys):
    caution("the fast path failed\nException raised from f at f.cpp:3\nframe #0: f() + 0xc8", UserWarning)
    assert capsys.readouterr().err == "warning: the fast path failed\n"


@pytest.mark.parametrize("home", ["site-packages/shoal", "checkout/src/shoal"])
def test_a_named_page_is_a_path_that_exists_wherever_shoal_is_installed(tmp_path, monkeypatch, home):
    package = tmp_path / home
    page = (package if "site" in home else package.parents[1]) / "docs/en/start/install.md"
    for folder in (package, page.parent):
        folder.mkdir(parents=True, exist_ok=True)
    page.touch()
    assert with_pages("(docs/en/start/install.md).", package) == f"({page})."
    assert with_pages("docs/en/none.md", package) == "docs/en/none.md"
    assert with_pages(str(page), package) == str(page)
    monkeypatch.chdir(page.parents[2])
    assert with_pages("see docs/en/start/install.md", package) == "see docs/en/start/install.md"
    (tmp_path / "removed").mkdir()
    monkeypatch.chdir(tmp_path / "removed")
    (tmp_path / "removed").rmdir()
    assert with_pages("docs/en/start/install.md", package) == str(page)
