"""Every bug of the gallery is found at its step, on its rank, in its tensor and phase; correct programs are equal."""

import pytest
from pool import gallery, outcome_of, record, world_of_one

ALL = gallery()
from bugs.program import GALLERY  # noqa: E402


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    record(folder, [*ALL])
    with world_of_one():
        yield folder


@pytest.mark.parametrize("name", GALLERY)
def test_a_bug_is_named(records, name):
    expected, found = GALLERY[name][1], outcome_of(records, name).finding
    assert found is not None
    assert (found.step, found.phase, found.rank) == expected[:3], found
    assert found.tensor.startswith(expected.tensor), found
    assert expected.says in found.cause, found


@pytest.mark.parametrize("name", [name for name in ALL if name not in GALLERY])
def test_a_correct_program_is_equal(records, name):
    outcome = outcome_of(records, name)
    assert outcome.finding is None
    assert outcome.steps > 2
