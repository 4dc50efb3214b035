"""The journal: the rules of the ledger and of turns, on words that several processes share."""

from random import Random

import pytest

from shoal.strategies.server.ledger import Ledger, Push
from shoal.strategies.server.mapped.journal import CAPACITY, Journal
from shoal.strategies.strategy import EndOfTurns, Turn

WORKERS, STEPS = 3, 12


def journal(workers=WORKERS, bound=None):
    return Journal([0] * Journal.num_words(workers), workers, bound)


def write(to, rank, sequence, version, step, share=-1, is_skipped=False):
    to.write(rank, sequence, version, step, share, is_skipped)


@pytest.mark.parametrize("bound", [1, 3, None])
def test_it_decides_as_the_ledger_does(bound):
    """The same pushes, in an order of chance: the same versions, staleness and releases."""
    for seed in range(20):
        chance, words, ledger = Random(seed), journal(bound=bound), Ledger(WORKERS, bound)
        step, version = [0] * WORKERS, [0] * WORKERS
        computing, waiting = set(range(WORKERS)), set()
        while computing:
            rank = min(computing) if chance.random() < 0.5 else chance.choice(sorted(computing))
            push = Push(rank, step[rank] + 1, version[rank], step[rank])
            update = ledger.receive(push)
            write(words, rank, push.sequence, push.version, push.step)
            (entry,) = words.entries()
            assert (entry.version, entry.staleness) == (update.version, update.staleness(push))
            step[rank] += 1
            computing.discard(rank)
            waiting.add(rank)
            free = [rank for rank in sorted(waiting) if words.may_go_on(rank)]
            assert free == ledger.release()
            waiting.difference_update(free)
            for rank in free:
                version[rank] = words.version
            computing |= {rank for rank in free if step[rank] < STEPS}
        assert words.state() == ledger.state()
        assert words.version == WORKERS * STEPS


def test_a_saved_ledger_is_restored_by_either():
    words = journal()
    for sequence in (1, 2):
        write(words, 1, sequence, 0, sequence - 1, is_skipped=sequence == 2)
    ledger, again = Ledger(WORKERS, None), journal()
    ledger.restore(words.state())
    again.restore(ledger.state())
    assert again.resume(1) == ledger.resume(1) == (2, 2)
    assert again.skipped == ledger.skipped == 1
    assert (again.version, again.entries()) == (2, []), "what was recorded before is not recorded again"


def test_the_server_reads_every_entry_once_also_when_the_ring_is_reused():
    words, found = journal(), []
    for version in range(3 * CAPACITY // 2):
        write(words, 0, version + 1, version, version)
        if version % (CAPACITY // 3) == 0:
            found += words.entries()
    found += words.entries()
    assert [entry.version for entry in found] == [*range(1, 3 * CAPACITY // 2 + 1)]


def test_a_worker_waits_when_the_server_is_a_whole_ring_behind():
    words = journal()
    while words.has_room():
        write(words, 0, words.version + 1, words.version, words.version)
    assert CAPACITY - WORKERS < words.version <= CAPACITY
    words.entries()
    assert words.has_room()


def test_a_stop_before_the_first_turn_of_a_resumed_run_ends_at_its_first_step():
    words = journal()
    words.note_stop(15)
    assert words.next_turn(15, 200) == EndOfTurns(15, 15)


def test_every_share_is_given_once_and_the_next_segment_goes_on_there():
    words = journal(workers=2)
    assert [words.next_turn(0, 2) for _ in range(5)] == [
        *(Turn(step, share) for step in range(2) for share in range(2)),
        EndOfTurns(2, 0),
    ]
    assert words.next_turn(2, 3) == Turn(2, 0)


def test_a_stop_ends_after_a_whole_step():
    words = journal()
    assert words.next_turn(0, 9) == Turn(0, 0)
    words.note_stop(15)
    assert [words.next_turn(0, 9) for _ in range(3)] == [Turn(0, 1), Turn(0, 2), EndOfTurns(1, 15)]


def test_all_get_the_same_answer_though_a_signal_comes_between():
    words = journal(workers=1)
    words.next_turn(0, 1)
    assert words.next_turn(0, 1) == EndOfTurns(1, 0)
    words.note_stop(15)
    assert words.next_turn(0, 1) == EndOfTurns(1, 0), "the next segment ends at once"
    assert words.next_turn(1, 2) == EndOfTurns(1, 15)


def test_without_turns_all_stop_after_the_step_that_the_fastest_has_begun():
    words = journal(bound=2)
    write(words, 0, 1, 0, 0)
    write(words, 0, 2, 1, 1)
    write(words, 1, 1, 0, 0)
    words.note_stop(15)
    assert [words.stop_signal_after(steps) for steps in (1, 2, 3)] == [0, 0, 15]
