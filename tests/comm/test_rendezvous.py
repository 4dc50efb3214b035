"""Workers that come together, and those that do not."""

import threading

import pytest
from torch.distributed import HashStore

from shoal.comm.rendezvous import meet
from shoal.errors import JoinError


def together(calls):
    """Run the calls on threads; give what each returned or raised."""
    results = {}

    def run(index, call):
        try:
            results[index] = call()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=item) for item in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return [results[index] for index in range(len(calls))]


def test_everyone_gets_all_cards():
    store = HashStore()
    results = together([lambda rank=rank: meet(store, rank, 3, 10) for rank in range(3)])
    assert [[card.rank for card in cards] for cards in results] == [[0, 1, 2]] * 3
    assert all(card.shares_machine_with(results[0][0]) for card in results[0])


def test_the_missing_are_named():
    store = HashStore()
    results = together([lambda rank=rank: meet(store, rank, 4, 0.3) for rank in (0, 2)])
    for error in results:
        assert isinstance(error, JoinError)
        assert "joined: 0, 2; missing: 1, 3" in str(error)


def test_different_world_sizes_are_shown_from_both_sides():
    store = HashStore()
    first, second = together([lambda: meet(store, 0, 2, 5), lambda: meet(store, 1, 3, 5)])
    assert str(first) == "rank 0 has world size 2, rank 1 has world size 3"
    assert isinstance(second, JoinError)


def test_the_first_differing_fact_is_shown():
    store = HashStore()
    facts = [{"torch": "2.13", "model": "mlp"}, {"torch": "2.13", "model": "lenet"}]
    results = together([lambda rank=rank: meet(store, rank, 2, 5, facts[rank]) for rank in range(2)])
    assert any("rank 0 has model mlp, rank 1 has model lenet" in str(error) for error in results)


def test_a_rank_that_is_started_twice():
    store = HashStore()
    meet(store, 0, 1, 1)
    with pytest.raises(JoinError, match="two workers say they are rank 0"):
        meet(store, 0, 1, 1)
