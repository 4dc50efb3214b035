"""Pages of help: no line wider than the terminal, and nothing changed where there is room."""

import pytest

from shoal.cli.main import COMMANDS, main
from shoal.cli.text import caution, fitted

PAGE = """Usage: shoal thing NAME [--out DIR] [--all]

A sentence that runs over two lines of the source,
because it is long.

  --out DIR  where it goes, which may be a folder that is not there yet
  a command that is itself too long for that   what it does, in some words"""


def test_what_fits_is_left_alone():
    assert fitted(PAGE, 100) == PAGE


def test_what_does_not_fit_goes_on_below_its_own_beginning():
    assert fitted(PAGE, 34).splitlines() == [
        "Usage: shoal thing NAME",
        "       [--out DIR] [--all]",
        "",
        "A sentence that runs over two",
        "lines of the source, because it is",
        "long.",
        "",
        "  --out DIR  where it goes, which",
        "             may be a folder that",
        "             is not there yet",
        "  a command that is itself too long for that",  # nothing can be done about it here
        "        what it does, in some",
        "        words",
    ]


@pytest.mark.parametrize(
    "command", [(), *((name,) for name in COMMANDS), ("data", "partition")], ids=" ".join
)
def test_every_page_fits_80_columns(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*command, "--help"]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert len(line) <= 80, line


def test_a_warning_of_torch_comes_without_its_stack_of_cpp(capsys):
    caution("the fast path failed\nException raised from f at f.cpp:3\nframe #0: f() + 0xc8", UserWarning)
    assert capsys.readouterr().err == "warning: the fast path failed\n"
