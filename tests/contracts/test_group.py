"""The contract of a group, kept by every kind of group at every world size."""

import pytest
from group_cases import CASES, MISTAKES, message_of_another_length, run_case

from shoal.comm.threads import run_threads
from shoal.errors import MismatchError

SIZES = (1, 2, 3, 4, 8)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES)
def test_threads(case, size):
    run_threads(size, lambda group: run_case(group, case, True))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mismatch_between_threads_shows_every_rank(mistake):
    function, shown = MISTAKES[mistake]
    with pytest.raises(MismatchError) as caught:
        run_threads(3, function)
    assert all(line in str(caught.value) for line in shown)


def test_a_message_between_threads_must_fit():
    with pytest.raises(MismatchError, match=r"rank 0 sent 8 .* rank 1, which expects 9"):
        run_threads(2, message_of_another_length)
