"""A quarter of the planted causes and of the healthy runs; `planted.py` makes all of them."""

import pytest
from planted import CASES, findings_of, healthy, tried, verdict

QUARTER = (
    "program: slow between steps", "program: slow loader on one rank", "program: larger batches on one rank",
    "program: checkpoints on one rank", "program: unused parameters", "train: delayed rank", "train: slow samples",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", QUARTER)
def test_the_right_cause_comes_first(name, tmp_path):
    planted = CASES[name]
    found = findings_of(planted.command, tmp_path, assume_idle=True)
    assert verdict(planted, found) == "right", found


@pytest.mark.long
@pytest.mark.parametrize("number", range(0, 48, 4))
def test_nothing_is_found_in_a_healthy_run_unless_the_machine_is_busy(number):
    judged, found = tried(healthy(number), tries=1)
    assert judged != "wrong", found


def test_the_verdict_needs_the_kind_and_the_rank():
    (case,) = [CASES["train: slow rank"]]
    assert verdict(case, []) == "wrong"
