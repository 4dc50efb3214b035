"""What is drawn agrees with the formulas of memory, and with the mesh."""

import xml.etree.ElementTree as ElementTree

import pytest

from shoal.config.read import read
from shoal.explain.names import all_rows, row_of
from shoal.explain.picture import CELLS, Picture, as_lines, as_svg, holdings, step_in_time
from shoal.memory.formulas import FORMULAS, components
from shoal.strategies.memory import GRADIENTS, PARAMETERS, STATE, Sizes

STRATEGIES = [row for row in all_rows() if row.kind == "strategy"]


def config_of(row, number, workers):
    return read(None, [*row.cases[number].flags.split(), "--workers", str(workers)])


def owned(blocks):
    """How many cells of each of the three bars a process has in memory of its own."""
    bars, here = [], 0
    for look, width, _ in blocks:
        here += width * (look == "own")
        if look == "":
            bars.append(here)
            here = 0
    return bars


@pytest.mark.parametrize("row", STRATEGIES, ids=lambda row: row.name)
def test_processes_hold_what_the_memory_formulas_say(row):
    meshes = [config_of(row, number, row.workers).axes for number in range(len(row.cases))]
    rows = [blocks for _, blocks in holdings(row, meshes, row.workers).rows]
    firsts = [
        rows[number + 1]
        for number, blocks in enumerate(rows)
        if blocks and blocks[0][2].startswith("weights")
    ]
    for number, first in enumerate(firsts):
        config = config_of(row, number, row.workers)
        if config.sync.name not in FORMULAS:
            continue
        model = CELLS * 64
        part = model // (config.axes.get("pipeline", 1) * config.axes.get("tensor", 1))
        sizes = Sizes(
            part, config.axes.get("data", 1), 4 * part, 8 * part, stage=getattr(config.sync, "stage", 1)
        )
        found = {each.name: each.num_bytes for each in components(config.sync.name, sizes)}
        expected = [found[PARAMETERS] / 4, found[GRADIENTS] / 4, found[STATE] / 8]
        assert [cells * 64 for cells in owned(first)] == expected
    assert len(firsts) == len(row.cases)


def test_the_workers_of_a_mesh_hold_the_whole_model_between_them():
    row = row_of("pipeline+tensor+zero")
    drawn = holdings(row, [config_of(row, 0, 8).axes], 8)
    spread = [[look for look, width, _ in blocks for _ in range(width)] for _, blocks in drawn.rows[1:]]
    states = [looks[-CELLS - 2 : -2] for looks in spread]
    assert [column.count("own") for column in zip(*states, strict=True)] == [1] * CELLS


def test_the_time_of_a_pipeline_is_that_of_its_schedule():
    drawn = step_in_time(row_of("pipeline"), 2)
    assert [label for label, _ in drawn.rows] == ["stage 0", "stage 1"]
    assert as_lines(drawn)[2] == "  stage 1  · F0B0──F1B1──· ·"


def test_a_picture_as_svg_has_every_label():
    picture = Picture("A step", [("rank 0", [("F", 4, "F0"), ("·", 2, "")]), ("<&>", [("number", 5, "1.5")])])
    root = ElementTree.fromstring(as_svg("naive", [picture]))
    words = {element.text for element in root.iter() if element.tag.endswith("text")}
    assert {"naive", "A step", "rank 0", "F0", "<&>", "1.5", "forward", "idle"} <= words
