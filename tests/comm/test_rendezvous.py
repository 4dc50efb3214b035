"""Workers that come together, and those that do not."""

import dataclasses
import json
import os
import threading

import pytest
from torch.distributed import HashStore

from shoal.comm.rendezvous import Card, meet
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
        assert "ranks 1, 3 are missing: 2 of 4 workers joined" in str(error)


def test_different_world_sizes_are_shown_from_both_sides():
    store = HashStore()
    first, second = together([lambda: meet(store, 0, 2, 5), lambda: meet(store, 1, 3, 5)])
    assert first.message == "rank 0 has world size 2, rank 1 has world size 3"
    assert second.message == "rank 1 has world size 3, rank 0 has world size 2"


def test_the_first_differing_fact_is_shown():
    store = HashStore()
    facts = [{"torch": "2.13", "model": "mlp"}, {"torch": "2.13", "model": "lenet"}]
    results = together([lambda rank=rank: meet(store, rank, 2, 5, facts[rank]) for rank in range(2)])
    assert any("rank 0 has model mlp, rank 1 has model lenet" in str(error) for error in results)


def test_whoever_waits_for_somebody_else_is_told_too():
    """Rank 0 waits for rank 1 alone, and would not look at rank 2, which does not fit."""
    store = HashStore()
    first, third = together([lambda: meet(store, 0, 2, 60), lambda: meet(store, 2, 3, 60)])
    assert first.message == third.message == "rank 2 has world size 3, rank 0 has world size 2"


def test_a_rank_that_is_started_twice(monkeypatch):
    store = HashStore()
    meet(store, 0, 1, 1)
    with pytest.raises(JoinError, match="rank 0 has joined already"):
        meet(store, 0, 1, 1)
    monkeypatch.setattr(os, "getpid", lambda: 4711)
    with pytest.raises(JoinError, match="two workers claim rank 0"):
        meet(store, 0, 1, 1)


def test_a_card_of_another_version_is_read_as_far_as_it_goes():
    card = Card.of_this_process(1, {"shoal": "9.0"}, "1")
    later = json.dumps({**dataclasses.asdict(card), "colour": "blue"}).encode()
    assert Card.read(1, later) == card
    with pytest.raises(JoinError, match="cannot read the card of rank 1"):
        Card.read(1, b'{"rank": 1}')


GARBAGE = [
    b"\x1b[2J",
    b"{",
    b"[1]",
    b"null",
    b"7",
    b"[" * 100_000,
    b"9" * 5_000,
    b'"' + b"x" * (2 << 20) + b'"',
    b"\xff",
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
@pytest.mark.parametrize("key", ["card/1", "refusal"])
def test_what_a_stranger_writes_ends_in_one_sentence(garbage, key):
    store = HashStore()
    store.set(key, garbage)
    with pytest.raises(JoinError) as caught:
        meet(store, 0, 2, 5)
    assert str(caught.value).count("\n") == 1
    assert len(str(caught.value)) < 500
    assert str(caught.value).replace("\n", "").isprintable()


def test_a_forged_refusal_or_card_controls_no_terminal():
    store = HashStore()
    store.set("refusal", json.dumps(["\x1b]0;owned\x07 gone", "\x9bhint"]))
    with pytest.raises(JoinError, match="gone") as caught:
        meet(store, 0, 2, 5)
    assert str(caught.value).replace("\n", "").isprintable()
    card = dataclasses.asdict(Card.of_this_process(1, {"world size": "\x1b[2J"}, ""))
    assert Card.read(1, json.dumps(card).encode()).facts == {"world size": "\\x1b[2J"}
