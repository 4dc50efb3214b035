"""A part of the seeded suite, the same in every run; `make test-faults` runs the whole."""

import re
from pathlib import Path

import pytest
from trials import FAULTS, NUM_FAULTS, NUM_INPUTS, Runner, kind_of

SEED = 0
ONCE = [
    "dies",
    "killed_while_saving",
    "stopped_and_continued",
    "signalled",
    "strangers",
    "cut",
    "dies_at_a_place",
    "launcher_dies_at_a_place",
    "raises_at_a_place",
    "nan_at_a_place",
    "signalled_at_a_place",
    "bad_gradients",
    "full_disk",
    "folder_gone",
    "misfits",
    "closed_streams",
    "exits",
    "users_programs",
    "damaged_checkpoint",
    "forged_manifest",
    "damaged_settings",
    "damaged_events",
]
"""Kinds that take about a second; those of the others that have no tests of their own elsewhere need more."""


def first_of(kind):
    """The first trial of a kind in which no worker is a new Python process: loading torch takes seconds."""
    return next(f"fault:{number}" for number in range(NUM_FAULTS) if kind_of(SEED, number).__name__ == kind)


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    runner = Runner(SEED, tmp_path_factory.mktemp("faults"))
    yield runner
    runner.close()


@pytest.mark.parametrize("kind", ONCE)
def test_a_fault_of_each_kind(runner, kind):
    assert runner.run(first_of(kind))[0] == kind


@pytest.mark.parametrize("number", range(12))
def test_malformed_input(runner, number):
    runner.run(f"input:{number}")


def test_the_whole_is_as_large_as_the_page_says():
    page = (Path(__file__).parents[2] / "docs/en/faults.md").read_text()
    assert re.search(rf"draws {NUM_FAULTS} faults and {NUM_INPUTS} malformed inputs", page)
    assert NUM_FAULTS >= 200
    assert NUM_INPUTS >= 300
    assert {kind_of(SEED, number) for number in range(NUM_FAULTS)} == set(FAULTS)
