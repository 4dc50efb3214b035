"""A schedule as text: every action once, in its place, within the width."""

import re

import pytest

from shoal.explain.grid import as_grid
from shoal.explain.pipeline import explain_schedule
from shoal.strategies.pipeline.schedules import SCHEDULES


def bands(grid: str) -> dict[int, str]:
    """What the grid shows of each stage, its bands joined."""
    rows: dict[int, str] = {}
    for number, cells in re.findall(r"^stage (\d+) +(.*)$", grid, re.MULTILINE):
        rows[int(number)] = rows.get(int(number), "") + cells
    return rows


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (4, 8), (3, 12)])
def test_every_action_is_shown_in_order(name, stages, microbatches):
    explanation = explain_schedule(name, stages, microbatches)
    shown = bands(as_grid(explanation))
    for stage, row in enumerate(explanation.schedule.compute_rows):
        assert re.findall(r"[FBIW]\d+", shown[stage]) == [str(a) for a in row if a.kind.value != "U"]
        assert shown[stage].count("U") == (microbatches if name == "async" else 0)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("width", [40, 80])
def test_no_line_is_wider_than_the_terminal(name, width):
    for stages, microbatches in [(4, 8), (12, 30)]:
        grid = as_grid(explain_schedule(name, stages, microbatches), width).partition("\n\nF ")[0]
        assert max(map(len, grid.splitlines())) <= width
    assert max(map(len, as_grid(explain_schedule(name, 4, 8), 80).splitlines())) <= 80


def test_four_stages_and_eight_microbatches_are_not_folded():
    grid = as_grid(explain_schedule("1f1b", 4, 8))
    assert "stage 3  · · · F0B0──F1B1──F2B2──F3B3──F4B4──F5B5──F6B6──F7B7──" in grid
    assert grid.count("stage 0  ") == 1


def test_what_is_cut_is_said():
    assert "Cut at time 80 of 1152; --svg FILE draws all of it." in as_grid(
        explain_schedule("sequential", 12, 32)
    )


def test_figures_stand_beside_their_formulas():
    grid = as_grid(explain_schedule("zero-bubble", 4, 2))
    assert "bubble            45.5 % of the stages' time" in grid
    assert "formula: b / (m(F + I + W) + b) = 33.3 %" in grid
    assert "the formula is exact for m ≥ p" in grid
    once = as_grid(explain_schedule("1f1b", 4, 8, weights_once=True))
    assert once.startswith("1f1b with weight gradients once per step, 4 stages, 8 micro-batches: 30 units")
    assert "formula" not in once


def test_colours_do_not_change_the_text():
    explanation = explain_schedule("async", 4, 8)
    kinds = set()

    def paint(kind, text):
        kinds.add(kind.value if kind else "idle")
        return f"<{text}>"

    painted = as_grid(explanation, paint=paint)
    assert re.sub("[<>]", "", painted) == as_grid(explanation)
    assert kinds == {"F", "B", "U", "idle"}
