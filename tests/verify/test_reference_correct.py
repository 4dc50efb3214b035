"""No false alarm: correct programs with many optimizers, wrappers, divisions and precisions are equal."""

import pytest
from bugs.correct import CORRECT
from pool import gallery, outcome_of, record, world_of_one

gallery()


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    record(folder, [*CORRECT])
    with world_of_one():
        yield folder


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_program_is_equal(records, name):
    outcome = outcome_of(records, name)
    assert outcome.finding is None
    assert outcome.steps > 2
    assert len(outcome.notes) == (name in ("Padded", "Repeated"))
