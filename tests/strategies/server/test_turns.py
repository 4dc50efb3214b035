"""Turns: every share of every step once, to a worker that is free, whichever worker is lost."""

import pytest

from shoal.strategies.server.turns import BoundedTurns, Turns
from shoal.strategies.strategy import Turn


def test_every_share_is_given_once_and_a_fast_worker_gets_more():
    turns, given = Turns(shares=2), []
    for sequence, rank in enumerate([0, 0, 0, 1, 0, 0, 0], start=1):
        turns.finish(rank)
        given.append((rank, turns.take(rank, sequence, 0, 3)))
    assert [turn for _, turn in given] == [
        *(Turn(step, share) for step in range(3) for share in range(2)),
        None,
    ]
    assert [rank for rank, _ in given].count(0) == 6
    assert not turns.is_over(0, 3), "rank 1 still computes its turn"
    turns.finish(1)
    assert turns.is_over(0, 3)


def test_the_next_segment_goes_on_where_the_last_one_ended():
    turns = Turns(shares=2)
    taken = [turns.take(0, sequence, 0, 2) for sequence in range(1, 6)]
    assert taken[-1] is None
    assert turns.take(1, 1, 2, 4) == Turn(2, 0)


def test_a_stop_ends_after_a_whole_step():
    turns = Turns(shares=3)
    assert turns.take(0, 1, 0, 9) == Turn(0, 0)
    turns.stop()
    assert [turns.take(0, sequence, 0, 9) for sequence in (2, 3, 4)] == [Turn(0, 1), Turn(0, 2), None]
    assert turns.end_of(0, 9) == 1


@pytest.mark.parametrize("turns", [Turns(2), BoundedTurns(2, 1)])
def test_a_stop_before_the_first_turn_of_a_resumed_run_ends_at_its_first_step(turns):
    turns.stop()
    assert turns.end_of(15, 200) == 15
    assert turns.take(0, 1, 15, 200) is None
    assert turns.is_over(15, 200)


def test_the_turn_of_a_lost_worker_is_given_to_the_next_that_asks():
    turns = Turns(shares=2)
    assert [turns.take(rank, 1, 0, 2) for rank in (0, 1)] == [Turn(0, 0), Turn(0, 1)]
    assert turns.lose(1) == Turn(0, 1)
    turns.finish(0)
    assert turns.take(0, 2, 0, 2) == Turn(0, 1)


def test_the_share_of_a_lost_worker_holds_the_others_back_until_one_takes_it():
    """As its worker would have: no turn begins more than `bound` steps ahead of any share."""
    turns, begun = BoundedTurns(shares=3, bound=1), []
    turns.lose(2)
    sequences = [0, 0]
    while not turns.is_over(0, 4):
        for rank in (0, 0, 1):  # rank 0 is twice as fast
            sequences[rank] += 1
            turn = turns.take(rank, sequences[rank], 0, 4)
            if turn is not None:
                begun.append((turn, min(turns._clocks)))
                turns.finish(rank)
    assert sorted(turn for turn, _ in begun) == [Turn(step, share) for step in range(4) for share in range(3)]
    assert max(turn.step - slowest for turn, slowest in begun) <= 1


@pytest.mark.parametrize("turns", [Turns(2), BoundedTurns(2, 1)], ids=["asp", "ssp"])
def test_a_repeated_request_gets_the_same_turn(turns):
    assert turns.take(0, 1, 0, 5) == turns.take(0, 1, 0, 5) == Turn(0, 0)
