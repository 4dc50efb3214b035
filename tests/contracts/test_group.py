"""The contract of a group, kept by every kind of group at every world size."""

import pytest
from group_cases import (
    CASES,
    MISTAKES,
    QUICK,
    a_closed_group_is_of_no_more_use_and_does_no_harm,
    a_message_from_anyone_is_there_when_first_asked_for,
    message_of_another_length,
    run_case,
)
from group_worlds import World

from shoal.comm.threads.group import run_threads
from shoal.errors import MismatchError

LARGE = (
    "all_reduce_takes_every_dtype_and_op",
    "all_reduce_of_any_length",
    "reduce_scatter_takes_every_dtype_and_op",
    "all_to_all_twice_is_the_identity",
    "roots_give_and_take",
    "several_groups_at_once",
    "everyone_writes_to_everyone",
    "a_server_receives_from_anyone",
)
"""Cases in which more members are more than further copies of the same: deeper trees, halves, who comes first."""
SMALL = [(size, case) for size in (1, 2, 3) for case in (QUICK if size == 2 else CASES)]
KINDS = {"shm": True, "gloo": False}
"""The groups of real processes, and whether they sum in balanced-tree order beyond two members."""


@pytest.mark.parametrize(("size", "case"), [*SMALL, *((8, case) for case in QUICK)])
def test_threads(size, case):
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


def test_a_closed_group_of_threads():
    run_threads(3, a_closed_group_is_of_no_more_use_and_does_no_harm)


# Real processes: one world per kind and size, asked case after case.


@pytest.fixture(scope="module")
def worlds():
    """Worlds of processes, started when first asked for."""
    started = {}

    def world(kind, size):
        if (kind, size) not in started:
            started[kind, size] = World(kind, size)
        return started[kind, size]

    yield world
    for each in started.values():
        each.close()


@pytest.mark.parametrize(("size", "case"), [*SMALL, *((6, case) for case in LARGE)])
@pytest.mark.parametrize("kind", KINDS)
def test_processes(worlds, kind, size, case):
    outcomes = worlds(kind, size).run(run_case, case, KINDS[kind] or size <= 2)
    assert [outcome for outcome in outcomes if outcome.gone or outcome.error] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_group_of_processes(worlds, kind):
    outcomes = worlds(kind, 3).run(a_closed_group_is_of_no_more_use_and_does_no_harm)
    assert [outcome for outcome in outcomes if outcome.gone or outcome.error] == []


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_mismatch_between_processes_shows_every_rank(kind, mistake):
    function, shown = MISTAKES[mistake]
    with World(kind, 3) as world:
        for outcome in world.run(function, timeout_s=30):
            assert outcome.error == "MismatchError"
            assert all(line in outcome.message for line in shown)


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_between_processes_must_fit(kind):
    with World(kind, 2) as world:
        _, receiver = world.run(message_of_another_length, timeout_s=30)
        assert receiver.error == "MismatchError"
        assert "rank 0 sent 8" in receiver.message
        assert "expects 9" in receiver.message


def test_a_message_from_anyone_through_shared_memory(worlds, tmp_path):
    outcomes = worlds("shm", 2).run(a_message_from_anyone_is_there_when_first_asked_for, tmp_path / "sent")
    assert [outcome for outcome in outcomes if outcome.gone or outcome.error] == []
