"""A tagged store gives what members wrote, and nothing that a stranger wrote, changed or repeated."""

import threading

import pytest
from torch.distributed import HashStore

from shoal.comm.rendezvous.tagged_store import LARGEST_VALUE, TaggedStore
from shoal.errors import JoinError


@pytest.fixture(autouse=True)
def _secret(monkeypatch):
    monkeypatch.setenv("SHOAL_SECRET", "a secret of this run")


def two_members(store=None):
    """Rank 0 and rank 1 of one run in one store."""
    store = store or HashStore()
    members = [TaggedStore(store, rank) for rank in range(2)]
    assert all(member.begin() for member in members)
    return store, *members


def only_value(store, before):
    """The name and the value of the one key that has been written since."""
    (name,) = set(store.list_keys()) - set(before)
    return name, store.get(name)


def test_members_read_each_other_under_every_view():
    _, first, second = two_members()
    first.within("a").set("k", "ä 1")
    first.clone().within("b").within("c").set("k", "2")
    assert second.within("a").read("k", 0) == "ä 1"
    assert second.within("b").within("c").read_all([("k", 0), ("none", 0)]) == ["2", None]
    assert second.read("k", 0) is None


def test_no_key_and_no_value_shows_what_it_is():
    store, first, _ = two_members()
    first.set("refusal", "x")
    assert not any("refusal" in key for key in store.list_keys())


@pytest.mark.parametrize(
    "forged", [b"", b"?", b"x", b"\xff" * 100, b"0" * 32 + b" 1 9 x", b"[" * 10**6, b"x" * (2 << 20)]
)
def test_garbage_is_ignored_before_and_after_the_first_value(forged):
    store, first, second = two_members()
    before = store.list_keys()
    second.set("end/1", "ours")
    name, value = only_value(store, before)
    store.set(name, forged)
    assert first.read("end/1", 1) is None
    store.set(name, value)
    assert first.read("end/1", 1) == "ours"
    store.set(name, forged)
    assert first.read_all([("end/1", 1)]) == ["ours"]
    store.delete_key(name)
    assert first.read_all([("end/1", 1)]) == ["ours"]


def test_a_value_fits_its_key_its_writer_and_its_turn_alone():
    store, first, second = two_members()
    before = store.list_keys()
    second.set("idle/1", "old")
    name, old = only_value(store, before)
    assert first.read("idle/1", 1) == "old"
    assert first.read("idle/1", 0) is None
    second.set("idle/1", "new")
    assert first.read("idle/1", 1) == "new"
    store.set(name, old)
    assert first.read("idle/1", 1) == "new", "an older value is a replay"

    before = store.list_keys()
    second.set("end/1", "of rank 1")
    place, _ = only_value(store, before)
    store.set(place, old)
    assert first.read("end/1", 1) is None, "a value of another key"


def test_a_value_of_another_writer_is_not_the_expected_ones():
    _, first, second = two_members()
    second.set("arena", "mine")
    assert first.read("arena", 0) is None
    assert first.read("arena") == "mine"


def test_names_and_values_of_an_earlier_run_fit_nothing_in_a_later_one():
    old, _, writer = two_members()
    writer.set("end/1", "failed")
    store = HashStore()
    first = TaggedStore(store, 0)
    first.begin()
    for key in old.list_keys():
        store.set(key, old.get(key))
    assert first.read("end/1", 1) is None
    assert not first.has_rival
    before = store.list_keys()
    second = TaggedStore(store, 1)
    (value,) = [old.get(key) for key in old.list_keys() if b"failed" in old.get(key)]
    first.set("probe", "x")
    name, _ = only_value(store, before)
    store.set(name, value)
    assert second.read("probe") is None


@pytest.mark.parametrize("body", [b"", b"1", b"1 2", b"x 2 y", b"1 x y", b"1 2 \xff", b"9" * 5000 + b" 1 x"])
def test_what_a_program_with_the_secret_garbles_is_ignored_too(body):
    store, first, second = two_members()
    before = store.list_keys()
    second.set("end/1", "ours")
    name, _ = only_value(store, before)
    store.set(name, second._tag(name, body) + b" " + body)
    assert first.read("end/1", 1) is None


def test_many_values_are_read_together_and_none_is_waited_for():
    store, first, second = two_members()
    entries = [(f"idle/{number}", 1) for number in range(20)]
    for key, _ in entries:
        second.set(key, key)
    assert first.read_all(entries) == [key for key, _ in entries]
    for key in store.list_keys():
        store.delete_key(key)
    assert first.read_all(entries) == [key for key, _ in entries]


def test_another_secret_reads_nothing(monkeypatch):
    store, _, second = two_members()
    second.set("end/1", "x")
    for other in ("another secret of a run", ""):
        monkeypatch.setenv("SHOAL_SECRET", other)
        stranger = TaggedStore(store, 2)
        assert not stranger.begin()
        assert stranger.noted_secrets([1]) == {}
    second.note_secret()
    assert stranger.noted_secrets([0, 1]) == {1: "another"}


@pytest.mark.parametrize("garbage", [b"", b"{", b"\xff", b"9" * 5_000, b"none of your business"])
def test_a_note_that_no_worker_wrote_does_not_count_as_a_secret(garbage):
    store, first, second = two_members()
    second.note_secret()
    store.set("secret of rank 1", garbage)
    assert first.noted_secrets([1]) == {}


def test_a_claim_takes_the_place_of_garbage_and_of_no_member():
    store, first, second = two_members()
    before = store.list_keys()
    first.set("card/0", "a")
    name, _ = only_value(store, before)
    assert second.claim("card/0", "b", 0) == "a"
    store.set(name, b"\xff\x00 garbage")
    assert first.claim("card/0", "c", 0) == "c"
    assert second.read("card/0", 0) == "c"


def test_a_value_that_others_would_refuse_is_not_written():
    _, first, _ = two_members()
    with pytest.raises(JoinError, match="cannot send 1,0"):
        first.set("card/0", "x" * LARGEST_VALUE)


def test_a_store_that_takes_no_second_connection_is_left_to_the_calls_that_need_it(monkeypatch):
    monkeypatch.setattr("shoal.comm.rendezvous.tagged_store.KEEP_EVERY_S", 0.001)
    _, first, _ = two_members()
    asked = threading.Event()

    def clone(_):
        asked.set()
        raise RuntimeError("the client socket has timed out")

    monkeypatch.setattr(TaggedStore, "clone", clone)
    with first.kept():
        first.set("word", "here")
        assert asked.wait(10)
    assert first.read("word") == "here"
