"""The benchmark measures what it says, and notices wrong results. (Times themselves are never asserted.)"""

import csv
import json

import pytest
import torch

from shoal.comm.threads.group import run_threads
from shoal.errors import ConfigError
from shoal.measure_collectives.measure import (
    BUS_FACTORS,
    LIMIT,
    BenchPlan,
    Contender,
    contenders,
    measure,
    sizes_between,
)
from shoal.measure_collectives.run import as_csv, as_json, as_table

QUICK = {"seconds_per_size": 0.001, "min_calls": 3, "max_calls": 3}


@pytest.mark.parametrize("operation", BUS_FACTORS)
def test_every_operation_gives_right_results_in_every_row(operation):
    plan = BenchPlan(operation=operation, sizes=(16, 4096), **QUICK)

    def work(group):
        again = group.split(range(group.size))
        algorithms = ("ring",) if operation == "all_reduce" else ()
        return measure(group, plan, contenders({"threads": again}, plan, algorithms))

    rows = run_threads(2, work)[0]
    names = ["threads", "ring on threads", LIMIT] if operation == "all_reduce" else ["threads", LIMIT]
    assert [(row.contender, row.size) for row in rows] == [
        (name, size) for size in (16, 4096) for name in names
    ]
    assert all(row.wrong == 0 and row.calls == 3 and row.time_us > 0 for row in rows)
    assert all(row.busbw == pytest.approx(row.algbw * BUS_FACTORS[operation](2)) for row in rows)
    assert all(row.of_memory_speed == 1 for row in rows if row.contender == LIMIT)


def test_a_wrong_result_is_counted():
    plan = BenchPlan(sizes=(400,), **QUICK)

    def work(group):
        def off_by_one(piece, whole):
            group.all_reduce(piece).wait()
            piece[3] += 1

        return measure(group, plan, [Contender("off by one", torch.empty, off_by_one)])

    assert run_threads(2, work)[0][0].wrong == 2 * (3 + 2), (
        "one element, two workers, three calls and two to warm up"
    )


def test_tables_say_the_same():
    plan = BenchPlan(sizes=(1024,), **QUICK)
    rows = run_threads(2, lambda group: measure(group, plan, contenders({"threads": group}, plan)))[0]
    table = as_table(rows, "the machine was loaded")
    assert "#wrong" in table
    assert "the machine was loaded" in table
    assert len(table.splitlines()) == 3 + len(rows)
    assert [row["contender"] for row in json.loads(as_json(rows, plan, 2))["rows"]] == ["threads", LIMIT]
    assert [row["size"] for row in csv.DictReader(as_csv(rows).splitlines())] == ["1024", "1024"]


def test_sizes():
    assert sizes_between(1024, 64 * 1024**2, 4)[-1] == 64 * 1024**2
    assert sizes_between(8, 8, 2) == (8,)
    with pytest.raises(ConfigError, match="no sizes from 8 to 4"):
        sizes_between(8, 4, 2)


def test_unknown_names_are_guessed():
    with pytest.raises(ConfigError, match="did you mean 'all_reduce'"):
        contenders({}, BenchPlan(operation="allreduce"))
    with pytest.raises(ConfigError, match="did you mean 'ring'"):
        run_threads(1, lambda group: contenders({"threads": group}, BenchPlan(), ["rings"]))
