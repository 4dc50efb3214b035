"""Who is to blame, from where each worker stands: every way in which workers wait for each other."""

import pytest

from shoal.launch.hangs.calls import MEETING, Call
from shoal.launch.hangs.judge import judge
from shoal.launch.hangs.standing import Place, Standing


def call(number=2, operation="all_reduce", shape="float32[8]", group="world", **more):
    return Call(f"{group}.1", group, number, operation, shape, 32, **more)


def waits(rank, at, *earlier):
    made = {(each.key, each.number): each for each in (*earlier, at) if not each.is_message}
    return Standing(rank, "waits", at, 31.0, made)


def stands(rank, *made, state="runs", stack=()):
    return Standing(rank, state, calls={(each.key, each.number): each for each in made}, stack=stack)


def verdict(*standings):
    found = judge(standings)
    assert found is not None
    return found


def test_a_call_that_differs_from_most_names_its_rank():
    other = call(operation="broadcast", peer=0)
    found = verdict(waits(0, call()), waits(1, other), waits(2, call()))
    assert (found.kind, found.guilty) == ("mismatch", (1,))
    assert "rank 1 calls broadcast(float32[8], root 0) as collective #2 of world" in found.sentence


def test_of_two_calls_that_differ_both_are_shown_and_nobody_is_blamed():
    found = verdict(waits(0, call()), waits(1, call(shape="float32[4]")._replace(num_bytes=16)))
    assert (found.kind, found.guilty) == ("mismatch", ())
    assert "float32[8]" in found.sentence
    assert "float32[4]" in found.sentence


def test_a_call_that_was_stopped_before_it_was_issued_counts_among_the_others():
    stopped = Standing(2, "failed", call())
    found = verdict(waits(0, call(operation="barrier", shape="")), waits(1, call()), stopped)
    assert (found.kind, found.guilty) == ("mismatch", (0,))


def test_a_mismatch_is_found_although_the_other_waits_no_longer():
    found = verdict(waits(0, call()), stands(1, call(operation="barrier", shape="")))
    assert found.kind == "mismatch"


@pytest.mark.parametrize("state", ["finished", "failed", "ended"])
def test_a_rank_that_has_left_is_named_before_one_that_only_works(state):
    found = verdict(waits(0, call()), stands(1), stands(2, call(1), state=state))
    assert (found.kind, found.guilty) == ("gone", (2,))


def test_a_rank_that_is_elsewhere_is_missing_and_its_place_is_shown():
    place = Place("/home/me/train.py", 77, "validate", "time.sleep(9)", True)
    found = verdict(waits(0, call()), stands(1, call(1), stack=[place]), waits(2, call()))
    assert (found.kind, found.guilty) == ("missing", (1,))
    assert "ranks 0, 2 wait" in found.sentence
    assert "train.py:77 in validate" in found.sentence


def test_a_rank_outside_the_group_is_not_missing():
    found = verdict(waits(0, call(group="world[0,2]")), stands(1), stands(2))
    assert found.guilty == (2,)


def test_one_that_waits_for_the_missing_one_elsewhere_is_not_blamed():
    """Rank 0 waits for rank 1, and rank 1 in another group for rank 2, which loops."""
    pair, rest = call(1, group="world[0,1]"), call(1, group="world[1,2]")
    found = verdict(waits(0, pair), waits(1, rest), stands(2))
    assert (found.kind, found.guilty) == ("missing", (2,))


def test_a_wrong_group_is_named_as_the_place_where_the_missing_one_has_called():
    mine, theirs, end = call(1, group="world[0,1]"), call(1, group="world[1,2]"), call(1, "barrier", "")
    found = verdict(waits(0, mine), waits(1, end, theirs), waits(2, end, theirs))
    assert (found.kind, found.guilty) == ("circle", (1,))
    assert "all_reduce #1 of world[1,2]" in found.sentence


def test_two_groups_in_crossed_order_are_a_circle_without_a_guilty_rank():
    one, other = call(1, group="world[0,1]"), call(1, "barrier", "")
    found = verdict(waits(0, one), waits(1, other))
    assert (found.kind, found.guilty) == ("circle", ())


def test_a_message_waits_for_its_other_end_until_that_is_there():
    sent = call(1, "send", peer=1)
    found = verdict(waits(0, sent), stands(1))
    assert (found.kind, found.guilty) == ("missing", (1,))
    assert "recv" in found.sentence
    assert verdict(waits(0, sent), stands(1, state="finished")).kind == "gone"
    assert judge([waits(0, sent), waits(1, call(1, "recv", peer=0))]) is None


def test_one_that_never_calls_init_process_group_is_missing():
    found = verdict(waits(0, Call(MEETING, "world", 1, "init_process_group")), stands(1))
    assert found.guilty == (1,)


def test_nothing_is_said_where_nobody_waits():
    assert judge([stands(0), stands(1, state="finished"), stands(2, state="failed")]) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (call(operation="all_to_all"), call(operation="all_to_all", shape="float32[2]")),
        (call(operation="broadcast"), call(operation="broadcast", shape="int32[8]")),
        (call(operation="all_gather")._replace(num_bytes=-1), call(operation="all_gather", shape="float32[2]")),
        (call(operation="send", peer=0), call(operation="send", peer=1)),
    ],
)  # fmt: skip
def test_calls_that_torch_allows_agree(one, other):
    assert one.agrees(other)
