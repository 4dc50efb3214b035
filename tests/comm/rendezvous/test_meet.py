"""Workers that come together, and those that do not."""

import dataclasses
import itertools
import json
import os
import threading
import time

import pytest
from torch.distributed import HashStore

from shoal.comm.rendezvous.meet import Card, meet
from shoal.comm.rendezvous.tagged_store import TaggedStore
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


class Interrupted:
    """A store of torch's, which another worker uses when `is_time` says so of a key that is read."""

    def __init__(self, store, is_time, act):
        self._store, self._is_time, self._act = store, is_time, act

    def __getattr__(self, name):
        return getattr(self._store, name)

    def compare_set(self, name, *values):
        if self._act is not None and self._is_time(name):
            act, self._act = self._act, None
            act()
        return self._store.compare_set(name, *values)


def test_a_worker_that_comes_and_refuses_between_two_reads_is_shown_from_our_side():
    """Rank 1 comes after rank 0 has looked for its card, and before rank 0 looks for a refusal."""
    store = HashStore()

    def come_and_refuse():
        theirs = TaggedStore(store, 1)
        assert theirs.begin()
        card = Card.of_this_process(1, {"world size": "3"}, "")
        theirs.claim("card/1", json.dumps(dataclasses.asdict(card)), 1)
        theirs.set("refusal", json.dumps(["rank 1 has world size 3, rank 0 has world size 2", ""]))
        theirs.set("heard/1", "")

    ours = TaggedStore(Interrupted(store, lambda name: name == ours._name("refusal"), come_and_refuse), 0)
    with pytest.raises(JoinError, match="^rank 0 has world size 2, rank 1 has world size 3"):
        meet(ours, 0, 2, 5)


def test_a_worker_that_waits_for_another_gets_the_error_too():
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
    later = json.dumps({**dataclasses.asdict(card), "colour": "blue"})
    assert Card.read(1, later) == card
    with pytest.raises(JoinError, match="cannot read the card of rank 1"):
        Card.read(1, '{"rank": 1}')


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


@pytest.mark.parametrize("secret", ["", "a secret of this run"])
def test_what_a_stranger_writes_is_ignored(monkeypatch, secret):
    """Under names that it guesses, and in place of every value that it finds."""
    monkeypatch.setenv("SHOAL_SECRET", secret)
    store, over, all_have_met = HashStore(), threading.Event(), threading.Barrier(2)

    def write_garbage():
        for garbage in itertools.cycle(GARBAGE):
            for key in ("card/1", "refusal", "run", *store.list_keys()):
                store.set(key, garbage)
            if over.wait(0.02):
                return

    def join(rank):
        ours = TaggedStore(store, rank)
        with ours.kept():
            cards = meet(ours, rank, 2, 20)
            meet(ours.within("again"), rank, 2, 20)
            all_have_met.wait(20)  # as the first barrier of a new group
            return [card.rank for card in cards]

    stranger = threading.Thread(target=write_garbage)
    stranger.start()
    try:
        assert together([lambda: join(0), lambda: join(1)]) == [[0, 1], [0, 1]]
    finally:
        over.set()
        stranger.join()


def test_a_forged_refusal_is_believed_only_without_a_secret_and_controls_no_terminal(monkeypatch):
    store, forger = HashStore(), []

    def forge():
        forger.append(TaggedStore(store, 1))
        while not forger[0].begin():
            time.sleep(0.01)
        forger[0].set("refusal", json.dumps(["\x1b]0;owned\x07 gone", "\x9bhint"]))

    error, _ = together([lambda: meet(store, 0, 2, 20), forge])
    assert "gone" in error.message
    assert str(error).replace("\n", "").isprintable()
    card = dataclasses.asdict(Card.of_this_process(1, {"world size": "\x1b[2J"}, ""))
    assert Card.read(1, json.dumps(card)).facts == {"world size": "\\x1b[2J"}
    monkeypatch.setenv("SHOAL_SECRET", "a secret of this run")
    for key in store.list_keys():
        store.set(f"old {key}", store.get(key))
    with pytest.raises(JoinError, match="rank 1 is missing"):
        meet(store, 0, 2, 0.3)


def with_secrets(secrets, timeout_s):
    """What each rank gets that comes with its secret."""
    store = HashStore()
    ours = []
    for rank, secret in enumerate(secrets):
        os.environ["SHOAL_SECRET"] = secret
        ours.append(TaggedStore(store, rank))
    calls = [
        lambda rank=rank: meet(ours[rank], rank, len(secrets), timeout_s) for rank in range(len(secrets))
    ]
    return together(calls)


SAME = "Give every rank the same SHOAL_SECRET_FILE or SHOAL_SECRET."


def test_another_secret_on_one_rank_is_named(monkeypatch):
    monkeypatch.setenv("SHOAL_SECRET", "")
    first, second, third = with_secrets(
        ["a secret of this run", "a secret of this run", "the secret of others"], 0.5
    )
    assert first.message == second.message == "rank 2 is missing: 2 of 3 workers joined within 0.5 s"
    assert f"Rank 2 has another secret, or none. {SAME}" in first.hint
    assert third.message == "ranks 0, 1 are missing: 1 of 3 workers joined within 0.5 s"
    assert f"Ranks 0, 1 have another secret, or none. {SAME}" in third.hint


def test_a_rank_without_a_secret_ends_at_once_where_others_have_one(monkeypatch):
    monkeypatch.setenv("SHOAL_SECRET", "")
    first, second = with_secrets(["", "a secret of this run"], 1.0)
    assert (first.message, first.hint) == ("rank 1 has a secret, rank 0 has none", SAME)
    assert f"Rank 0 has another secret, or none. {SAME}" in second.hint
