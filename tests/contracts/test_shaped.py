"""A group with links between its members is a group: it keeps the same contract, over threads and over processes."""

import group_faults as faults
import pytest
from group_cases import CASES, MISTAKES, QUICK
from group_worlds import World
from shaped_cases import (
    a_closed_shaped_group,
    leave_a_split,
    make_shaped_mistake,
    run_shaped_case,
    send_much_and_compute,
    shaped_fault,
    shaped_message_of_another_length,
)

from shoal.comm.threads.group import run_threads
from shoal.errors import MismatchError


@pytest.mark.parametrize(("case", "size"), [*((case, 2) for case in QUICK), *((case, 3) for case in CASES)])
def test_threads(case, size):
    # Sums go round a ring: in the tree's order only where there are two.
    run_threads(size, lambda group: run_shaped_case(group, case, size <= 2))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mismatch_between_threads_shows_every_rank(mistake):
    with pytest.raises(MismatchError) as caught:
        run_threads(3, lambda group: make_shaped_mistake(group, mistake))
    assert all(line in str(caught.value) for line in MISTAKES[mistake][1])


def test_a_message_between_threads_must_fit():
    with pytest.raises(MismatchError, match=r"rank 0 sent 8 .* rank 1, which expects 9"):
        run_threads(2, shaped_message_of_another_length)


def test_a_closed_group_of_threads():
    run_threads(3, a_closed_shaped_group)


@pytest.fixture(scope="module", params=["gloo", "shm"])
def world(request):
    with World(request.param, 3) as world:
        yield world


MOVING = [
    "every_collective_can_be_polled_while_a_member_computes",
    "works_are_waited_for_in_any_order",
    "several_groups_at_once",
    "roots_give_and_take",
    "messages_arrive_in_order",
    "everyone_writes_to_everyone",
    "messages_and_collectives_mix",
    "a_server_receives_from_anyone",
    "messages_from_anyone_may_be_large_and_asked_for_first",
    "a_named_sender_and_anyone_share_its_messages",
    "it_states_what_it_can_do",
    "members_see_each_others_memory",
    "one_memory_for_all_members",
]
"""Cases that depend on the group beneath: how its messages move, and what it can do. Threads are given all cases."""


@pytest.mark.parametrize("case", MOVING)
def test_processes(world, case):
    outcomes = world.run(run_shaped_case, case, False)
    assert [outcome for outcome in outcomes if outcome.gone or outcome.error] == []


def test_a_long_message_goes_on_while_its_sender_computes(world, tmp_path):
    outcomes = world.run(send_much_and_compute, tmp_path / "sum")
    assert [outcome for outcome in outcomes if outcome.gone or outcome.error] == []
    assert (tmp_path / "sum").read_text() == str(sum(range(2_000_000)))


def test_a_closed_group_of_processes(world):
    outcomes = world.run(a_closed_shaped_group)
    assert [outcome for outcome in outcomes if outcome.gone or outcome.error] == []


@pytest.mark.parametrize("kind", ["gloo", "shm"])
def test_a_mismatch_between_processes_shows_every_rank(kind):
    with World(kind, 3) as world:
        for outcome in world.run(make_shaped_mistake, "different_root", timeout_s=30):
            assert outcome.error == "MismatchError"
            assert all(line in outcome.message for line in MISTAKES["different_root"][1])


@pytest.mark.parametrize("kind", ["gloo", "shm"])
@pytest.mark.parametrize(
    ("fault", "how", "reason"),
    [
        (faults.end_in_the_middle, ("SIGKILL",), "died"),
        (faults.fail, (), "failed"),
        (faults.leave, (), "left"),
        (faults.wait_for_a_message, (faults.die,), "died"),
    ],
)
def test_waits_end_with_the_errors_of_the_group_beneath(kind, fault, how, reason):
    with World(kind, 3) as world:
        outcomes = world.run(shaped_fault, fault, faults.VICTIM, *how, victim=faults.VICTIM, timeout_s=30)
        for rank in (0, 2):
            assert (outcomes[rank].rank, outcomes[rank].reason) == (faults.VICTIM, reason), outcomes[rank]


def test_who_leaves_a_split_is_missed_there_alone():
    assert run_threads(2, leave_a_split)[0] == "rank 1 left the group before send to rank 0"
