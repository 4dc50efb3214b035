"""Every bug of the gallery is found at its step, on its rank, in its tensor and phase."""

import pytest
from bugs.program import GALLERY
from pool import gallery, outcome_of, record, world_of_one

gallery()


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    record(folder, [*GALLERY])
    with world_of_one():
        yield folder


@pytest.mark.parametrize("name", GALLERY)
def test_a_bug_is_named(records, name):
    expected, found = GALLERY[name][1], outcome_of(records, name).finding
    assert found is not None
    assert (found.step, found.phase, found.rank) == expected[:3], found
    assert found.tensor.startswith(expected.tensor), found
    assert expected.says in found.cause, found


def test_the_gallery_is_as_large_as_the_page_says():
    assert len(GALLERY) >= 50
