"""Turns: every share of every step once, to a free worker."""

from shoal.parallel.strategy import Turn
from shoal.parallel.sync.server.turns import Turns


def test_every_share_is_given_once_and_a_fast_worker_gets_more():
    turns, given = Turns(shares=2), []
    for sequence, rank in enumerate([0, 0, 0, 1, 0, 0, 0], start=1):
        given.append((rank, turns.take(rank, sequence, 0, 3)))
    assert [turn for _, turn in given] == [
        *(Turn(step, share) for step in range(3) for share in range(2)),
        None,
    ]
    assert [rank for rank, _ in given].count(0) == 6


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
    assert turns.end_of(9) == 1
