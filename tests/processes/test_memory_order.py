"""Processors may reorder memory; what a member reads must never be older than the flag it has seen."""

import group_faults as faults
import pytest
from group_worlds import World


@pytest.mark.parametrize("size", [2, 4])
def test_no_stale_element_in_thousands_of_rounds(size):
    with World("shm", size) as world:
        outcomes = world.run(faults.count_stale, 8000 // size, timeout_s=60)
        assert [(outcome.value, outcome.error) for outcome in outcomes] == [(0, None)] * size
