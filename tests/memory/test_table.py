"""The table of `shoal memory`: a row for each component, in 80 columns."""

import json
from dataclasses import replace

from shoal.config.read import read
from shoal.memory.formulas import components
from shoal.memory.measure import WorkerMemory
from shoal.memory.table import as_json, as_table, fullest
from shoal.strategies.memory import Sizes

MIB = 2**20
CONFIG = read(None, ["--model=mlp", "--strategy=zero", "--optimizer=adam", "--workers=2"])
SIZES = Sizes(MIB, 2, 4 * MIB, 8 * MIB, unit=MIB, slots=4 * MIB, activations=None, offload="file")


def worker(rank, total):
    measured = {"parameters": 4 * MIB, "gradients": 4 * MIB, "offloaded state": 4 * MIB}
    return WorkerMemory(rank, SIZES, components("zero", SIZES), measured, total, 3 * MIB)


def test_every_component_has_a_row_and_the_total_is_a_bound():
    table = as_table(CONFIG, worker(1, 12 * MIB))
    assert max(map(len, table.splitlines())) <= 80
    lines = {line.split("  ")[0]: line.split() for line in table.splitlines()}
    assert lines["parameters"][1:] == ["4Ψ", "4.0", "4.0"]
    assert lines["activations"][-2:] == ["–", "–"]
    assert lines["other"] == ["other", "4.0"], "what was measured less what was counted in memory"
    assert lines["total"] == ["total", "≥", "11.0", "12.0"], "a part is not known"
    assert table.startswith("mlp, adam, zero stage 1; rank 1, the fullest of 2 workers\n")
    assert "Ψ = 1,048,576 parameters" in table
    assert "U = 1.0 MiB, the largest unit" in table
    assert "The C library keeps 3.0 MiB more" in table
    assert "What is off-loaded is not counted in the total." in table


def test_the_total_has_a_difference_if_all_parts_are_known():
    known = replace(SIZES, activations=MIB)
    whole = WorkerMemory(1, known, components("zero", known), {}, 15 * MIB, 0)
    total = next(line for line in as_table(CONFIG, whole).splitlines() if line.startswith("total"))
    assert total.split() == ["total", "12.0", "15.0", "+25.0", "%"]
    found = json.loads(as_json(CONFIG, [whole]))["by_worker"][0]
    assert (found["formula_is_complete"], found["difference"]) == (True, 0.25)


def test_without_workers_there_is_no_measurement():
    table = as_table(CONFIG, worker(0, 0), is_measured=False)
    assert "measured" not in table
    assert next(line for line in table.splitlines() if line.startswith("total")).split() == [
        "total",
        "≥",
        "11.0",
    ]


def test_json_has_every_worker():
    workers = [worker(0, 11 * MIB), worker(1, 12 * MIB)]
    assert fullest(workers).rank == 1
    found = json.loads(as_json(CONFIG, workers))
    assert (found["strategy"], found["workers"], found["fullest"]) == ("zero", 2, 1)
    first = found["by_worker"][0]
    assert (first["formula_bytes"], first["measured_bytes"]) == (11 * MIB, 11 * MIB)
    assert (first["formula_is_complete"], first["difference"]) == (False, None)
    rows = {row["name"]: row for row in first["components"]}
    assert rows["gradients"] == {
        "name": "gradients",
        "formula": "4Ψ",
        "formula_bytes": 4 * MIB,
        "measured_bytes": 4 * MIB,
        "in_total": True,
    }
