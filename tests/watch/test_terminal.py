"""The live view without a page: a table on a terminal, lines elsewhere."""

import io

import numpy as np
import pytest
from growing import Growing
from rich.console import Console
from rich.text import Text

from shoal.watch.follow import FollowedRun
from shoal.watch.snapshot import Curves, snapshot
from shoal.watch.terminal import curve_lines, drawn, show
from shoal.words import read_words


@pytest.fixture
def folder(tmp_path):
    made = Growing(tmp_path / "run", workers=2)
    made.begin(total=50)
    made.steps(0, 40, own_ms=[3.0, 9.0])
    return made


def test_without_a_terminal_there_are_lines_until_the_run_is_over(folder):
    folder.end(step=40)
    stream = io.StringIO()
    show(folder.path, None, "en", stream)
    lines = stream.getvalue().splitlines()
    assert "40 of 50" in lines[-1]
    assert sum("Rank 1 is slow" in line for line in lines) == 1
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_table_has_a_row_for_each_worker_and_fits(folder, columns):
    run = FollowedRun(folder.path)
    run.read()
    console = Console(file=io.StringIO(), width=columns, force_terminal=True)
    console.print(drawn(snapshot(run), None, read_words("en", "shoal.watch"), "run", columns))
    lines = [Text.from_ansi(line).plain for line in console.file.getvalue().splitlines()]
    rows = [line for line in lines[1:] if line.split()[1:2] in (["training"], ["training,"])]
    assert ["slow" in row for row in rows] == [False, True]
    assert max(map(len, lines)) <= columns


def test_no_colour_where_the_user_wants_none(folder, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    run = FollowedRun(folder.path)
    run.read()
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    console.print(drawn(snapshot(run), None, read_words("en", "shoal.watch"), "run", 80))
    assert "\x1b[3" not in console.file.getvalue()  # 30 to 37: colours


def test_the_loss_is_a_small_curve_between_its_largest_and_smallest_value():
    nothing = np.empty(0)
    losses = np.linspace(2.0, 1.0, 50)
    curves = Curves("", np.arange(50.0), losses, losses, nothing, nothing, nothing, nothing)
    lines = curve_lines(curves, 20, rows=3)
    assert len(lines) == 3
    assert (lines[0].split()[-1], lines[-1].split()[-1]) == ("2", "1")
    filled = [len(line.rsplit(" ", 1)[0].rstrip()) for line in lines]
    assert filled == sorted(filled)
    assert filled[-1] == 20
