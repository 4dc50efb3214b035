"""The contract of schedules: ours keep it, and schedules that are wrong on purpose fail."""

import json
import sys

import pytest

from shoal.cli.main import main
from shoal.strategies.pipeline.contract import ScheduleSubject, examine_schedule
from shoal.strategies.pipeline.schedules import SCHEDULES

OWN = """
import itertools
from shoal.errors import ConfigError
from shoal.strategies.pipeline.schedule import Schedule, parse_row
from shoal.strategies.pipeline.schedules import one_f_one_b
from shoal.strategies.pipeline.timing import with_messages

def copy(stages, microbatches):
    \"\"\"A copy of 1f1b.\"\"\"
    return one_f_one_b(stages, microbatches)

def even(stages, microbatches):
    if microbatches % 2:
        raise ConfigError("an even number of micro-batches, please")
    return one_f_one_b(stages, microbatches)

def one_by_one(stages, microbatches, peak=1):
    row = parse_row(" ".join(f"F{k} B{k}" for k in range(microbatches)))
    return Schedule("own", microbatches, with_messages([row] * stages), (peak,) * stages)

def small(stages, microbatches):
    \"\"\"With two stages, each waits for the other.\"\"\"
    if (stages, microbatches) != (2, 2):
        return one_f_one_b(stages, microbatches)
    return Schedule("own", 2, with_messages([parse_row("F0 B0 F1 B1"), parse_row("F0 F1 B0 B1")]), (1, 2))

def greedy(stages, microbatches):
    return one_by_one(stages, microbatches, peak=2)

def raising(stages, microbatches):
    raise ValueError("no rows today")

calls = itertools.count()

def changing(stages, microbatches):
    return one_by_one(stages, microbatches) if next(calls) % 2 else one_f_one_b(stages, microbatches)

def late(stages, microbatches):
    made = one_f_one_b(stages, microbatches)
    rows = tuple(tuple(sorted(row, key=lambda action: action.kind.is_message)) for row in made.rows)
    return Schedule("own", microbatches, rows, made.peak_live)
"""


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    (tmp_path / "own_schedules.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("own_schedules", None)


def problems(name, stages=3, microbatches=4):
    verdicts = examine_schedule(ScheduleSubject(name, stages, microbatches))
    return {verdict.name: verdict.problem for verdict in verdicts if verdict.problem}


@pytest.mark.parametrize("name", [*SCHEDULES, "own_schedules:copy", "own_schedules:even"])
def test_right_schedules_keep_it(name):
    assert problems(name) == {}


@pytest.mark.parametrize(
    ("name", "clause", "said"),
    [
        ("greedy", "valid", "1 stage, 1 micro-batch: stage 0, action 0 (F0): holds 1 live activations"),
        ("small", "valid", "2 stages, 2 micro-batches: stage 0 deadlocks in B0"),
        ("raising", "valid", "raised ValueError for 1 stage and 1 micro-batch: no rows today (at "),
        ("late", "valid", "2 stages, 1 micro-batch: stage 0, action 1 (B0): its input arrives later"),
        ("changing", "the same each time", "it is another one the second time"),
    ],
)
def test_a_wrong_schedule_fails(name, clause, said):
    assert said in problems(f"own_schedules:{name}")[clause]


def test_the_size_that_is_asked_for_is_not_left_out():
    assert "an even number" in problems("own_schedules:even", microbatches=3)["valid"]


def test_the_command_draws_it_beside_the_verdicts(capsys):
    assert main(["check", "schedule", "own_schedules:copy"]) == 0
    shown = capsys.readouterr().out
    assert "all 3 passed" in shown
    assert "1f1b, 4 stages, 8 micro-batches: 33 units of time" in shown
    assert "27.3 % of the stages' time" in shown
    assert main(["check", "schedule", "own_schedules:copy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bubble"] == pytest.approx(3 / 11)
    assert main(["check", "schedule", "own_schedules:greedy"]) == 1
    assert "stage 0  F0" not in capsys.readouterr().out
