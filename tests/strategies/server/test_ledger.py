"""The ledger: each push once, staleness within its bound, for every order in which messages can arrive."""

from itertools import permutations
from random import Random

import pytest

from shoal.errors import GroupError
from shoal.strategies.server.ledger import Ledger, Push

WORKERS, STEPS = 3, 12


def run(bound, seed, workers=WORKERS, steps=STEPS):
    """Workers whose pushes arrive in an order of chance; the updates, in order. Each worker pushes when it may."""
    chance, ledger = Random(seed), Ledger(workers, bound)
    step, version = [0] * workers, [0] * workers
    computing, made = set(range(workers)), []
    while computing:
        # Some schedules prefer one worker as long as they can.
        rank = min(computing) if chance.random() < 0.5 else chance.choice(sorted(computing))
        push = Push(rank, step[rank] + 1, version[rank], step[rank])
        made.append((ledger.receive(push), push))
        computing.discard(rank)
        step[rank] += 1
        for free in ledger.release():
            version[free] = ledger.version
            if step[free] < steps:
                computing.add(free)
    return made


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_every_update_reads_all_steps_up_to_the_bound(bound):
    for seed in range(40):
        made = run(bound, seed)
        assert len(made) == WORKERS * STEPS, "no worker waits for ever"
        for update, push in made:
            finished = [0] * WORKERS
            for _, earlier in made[: push.version]:
                finished[earlier.rank] += 1
            assert min(finished) >= push.step - bound, "it began a step too early"
            assert update.staleness(push) <= (WORKERS - 1) * (2 * bound + 1)


def test_without_a_bound_no_worker_waits():
    made = run(None, seed=1)
    ledger = Ledger(2, bound=None)
    for sequence in range(1, 50):
        ledger.receive(Push(0, sequence, sequence - 1, sequence - 1))
        assert ledger.release() == [0], "though rank 1 has done nothing"
    assert len(made) == WORKERS * STEPS


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_gathered_pushes_are_one_update_in_rank_order(order):
    ledger = Ledger(3, bound=0, needed=3)
    updates = [ledger.receive(Push(rank, 1, 0, 0)) for rank in order]
    assert updates[:2] == [None, None]
    assert [push.rank for push in updates[2].pushes] == [0, 1, 2]
    assert ledger.release() == [0, 1, 2]


def test_no_worker_gets_a_reply_before_the_update_of_its_step():
    ledger = Ledger(2, bound=0, needed=2)
    ledger.receive(Push(1, 1, 0, 0))
    assert ledger.release() == []
    ledger.receive(Push(0, 1, 0, 0))
    assert ledger.release() == [0, 1]


def test_with_a_backup_worker_the_slowest_push_is_dropped_and_counted():
    ledger = Ledger(3, bound=0, needed=2)
    assert ledger.receive(Push(2, 1, 0, 0)) is None
    assert [push.rank for push in ledger.receive(Push(0, 1, 0, 0)).pushes] == [0, 2]
    assert ledger.receive(Push(1, 1, 0, 0)) is None
    assert (ledger.dropped, ledger.release()) == (1, [0, 1, 2])


def test_a_repeated_push_is_acknowledged_and_not_applied():
    ledger = Ledger(1, bound=None)
    assert ledger.receive(Push(0, 1, 0, 0)) is not None
    assert ledger.release() == [0]
    for _ in range(3):
        assert ledger.receive(Push(0, 1, 0, 0)) is None
        assert ledger.release() == [0]
    ledger.receive(Push(0, 2, 1, 1))
    ledger.release()
    assert ledger.receive(Push(0, 1, 0, 0)) is None, "the network kept it"
    assert ledger.release() == [], "its reply has arrived long ago"
    assert ledger.version == 2


def test_a_missing_push_is_an_error():
    with pytest.raises(GroupError, match="request 3 of rank 1 came after its request 0: one is missing"):
        Ledger(2, bound=None).receive(Push(1, 3, 0, 0))


def test_a_ledger_that_was_saved_before_skips_were_counted_is_restored():
    ledger = Ledger(2, bound=None)
    ledger.receive(Push(0, 1, 0, 0))
    again = Ledger(2, bound=None)
    again.restore(ledger.state()[:-1])
    assert (again.version, again.skipped, again.resume(0)) == (1, 0, (1, 1))


def test_a_worker_that_had_skipped_its_last_steps_resumes_with_the_others():
    ledger, again = (Ledger(3, bound=0, needed=2) for _ in range(2))
    for step in range(10):
        for rank in (0, 1):
            ledger.receive(Push(rank, step + 1, step, step))
    ledger.receive(Push(2, 1, 0, 0))
    assert (ledger.version, ledger.resume(2)) == (10, (1, 1))
    again.restore(ledger.state())
    assert [again.resume(rank) for rank in range(3)] == [(10, 10), (10, 10), (1, 10)]
    for rank in (0, 1):
        again.receive(Push(rank, 11, 10, 10))
    assert again.resume(2) == (1, 10), "its own step, not that of the faster ones"


def test_a_saved_ledger_does_not_know_what_it_only_held():
    ledger = Ledger(2, bound=0, needed=2)
    ledger.receive(Push(0, 1, 0, 0))
    again = Ledger(2, bound=0, needed=2)
    again.restore(ledger.state())
    assert again.resume(0) == (0, 0)
    assert again.receive(Push(1, 1, 0, 0)) is None
    assert again.receive(Push(0, 1, 0, 0)).version == 1
