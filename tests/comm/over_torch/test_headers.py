"""Headers reach everyone in order, whatever the network and strangers do."""

import os
import socket
import threading
import time

import pytest
from torch.distributed import HashStore

from shoal.comm.over_torch import headers
from shoal.comm.over_torch.headers import NO_RANK, Header, Headers
from shoal.comm.rendezvous.store import listen
from shoal.comm.rendezvous.tagged_store import tagged

pytestmark = pytest.mark.timeout(60)


def connected(size, store=None):
    """The headers of all members, made at the same time."""
    store, made = store or HashStore(), [None] * size

    def connect(rank):
        made[rank] = Headers(store, rank, range(size), "127.0.0.1")

    threads = [threading.Thread(target=connect, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return made


def address_of_rank_0(store):
    """Where rank 0 listens, as a member finds it."""
    ours = tagged(store, 1)
    while (text := ours.read("address/0", 0)) is None:
        time.sleep(0.002)
    port, address = text.split(" ", 1)
    return address, int(port)


def taken(member):
    """The next rows, waited for."""
    for _ in range(100):
        rows = member.take()
        if rows is not None:
            return rows
        member.wait_for(0.1)
    raise AssertionError("the headers never came")


def test_rows_are_in_rank_order_and_those_of_one_call_together():
    members = connected(3)
    for call in range(2):
        for rank, member in enumerate(members):
            member.publish(Header(call, 10 * call + rank))
    for call in range(2):
        for member in members:
            assert taken(member) == [Header(call, 10 * call + rank) for rank in range(3)]
    assert members[0].take() is None


def test_nothing_is_taken_until_the_last_has_published():
    first, second, third = connected(3)
    first.publish(Header(1, 1))
    second.publish(Header(1, 1))
    assert first.take() is None
    third.publish(Header(1, 1))
    assert taken(first) == [Header(1, 1)] * 3


def test_alone_there_is_no_peer_to_hear_from():
    (alone,) = connected(1)
    alone.publish(Header(7, 8))
    assert alone.take() == [Header(7, 8)]


def test_publishing_never_blocks_and_loses_nothing():
    ahead, behind = connected(2)
    (to_behind,), (to_ahead,) = ahead._peers, behind._peers
    to_behind.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    to_ahead.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    calls = [Header(call, -call) for call in range(2_000)]
    for call in calls:
        ahead.publish(call)
    assert to_behind._to_send, "the system took everything: nothing was tried"
    for call in calls:
        behind.publish(call)
        while (rows := behind.take()) is None:
            ahead.take()  # a member that waits hands over what is left
        assert rows == [call] * 2


def test_what_a_member_published_before_it_went_counts_and_then_it_is_named():
    stays, goes = connected(2)
    goes.publish(Header(1, 2))
    goes.close()
    stays.publish(Header(1, 2))
    assert taken(stays) == [Header(1, 2)] * 2
    stays.publish(Header(3, 4))
    with pytest.raises(RuntimeError, match="rank 1"):
        taken(stays)


def test_a_member_that_goes_says_whom_it_blames_and_one_that_is_killed_says_nothing():
    stays, killed, blames = connected(3)
    assert stays.hung_up() == {}
    killed.close()
    blames.blame(1)
    blames.close()
    while len(stays.hung_up()) < 2:
        stays.wait_for(0.01)
    assert stays.hung_up() == {1: NO_RANK, 2: 1}


def test_a_stranger_is_not_taken_for_a_member():
    store = HashStore()
    stranger_was_let_go = threading.Event()

    def intrude():
        with socket.create_connection(address_of_rank_0(store), timeout=20) as stranger:
            stranger.sendall((1).to_bytes(4, "little") + bytes(16))  # "I am rank 1", without the tag
            if stranger.recv(1) == b"":
                stranger_was_let_go.set()

    zero = []
    first = threading.Thread(target=lambda: zero.append(Headers(store, 0, range(2), "127.0.0.1")))
    first.start()
    intrude()
    one = Headers(store, 1, range(2), "127.0.0.1")
    first.join(30)
    assert stranger_was_let_go.is_set()
    one.publish(Header(5, 6))
    zero[0].publish(Header(5, 6))
    assert taken(zero[0]) == [Header(5, 6)] * 2


def test_strangers_who_say_nothing_or_little_delay_no_member(monkeypatch):
    """More of them than are heard at once, all there before the member comes."""
    monkeypatch.setattr(headers, "HELLO_S", 1000.0)
    store, strangers = HashStore(), []
    made = []
    first = threading.Thread(
        target=lambda: made.append(Headers(store, 0, range(2), "127.0.0.1")), daemon=True
    )
    first.start()
    address = address_of_rank_0(store)
    for number in range(headers.MOST_UNKNOWN + 10):
        strangers.append(socket.create_connection(address, timeout=20))
        strangers[-1].sendall(bytes(number % 3))
    made.append(Headers(store, 1, range(2), "127.0.0.1"))
    first.join(30)
    assert len(made) == 2
    assert all(stranger.recv(1) == b"" for stranger in strangers), "all are let go in the end"
    for stranger in strangers:
        stranger.close()


def test_a_stranger_who_keeps_silent_is_let_go(monkeypatch):
    monkeypatch.setattr(headers, "HELLO_S", 0.0)
    store = HashStore()
    threading.Thread(target=lambda: Headers(store, 0, range(2), "127.0.0.1"), daemon=True).start()
    with socket.create_connection(address_of_rank_0(store), timeout=20) as stranger:
        assert stranger.recv(1) == b""
    monkeypatch.undo()
    Headers(store, 1, range(2), "127.0.0.1").close()


def test_who_cannot_reach_whom_is_said_with_the_ranks_of_the_world(monkeypatch):
    monkeypatch.setattr(headers, "CONNECT_S", 0.1)
    with listen("127.0.0.1", 0) as server:
        port = server.getsockname()[1]
    store = HashStore()
    tagged(store, 4).set("address/0", f"{port} 127.0.0.1")
    with pytest.raises(RuntimeError, match=f"rank 7 cannot reach rank 4 at 127.0.0.1, port {port}: "):
        Headers(store, 1, [4, 7], "127.0.0.1")
    with pytest.raises(
        RuntimeError, match=r"no connection came to rank 4 from rank 7 \(check for a firewall"
    ):
        Headers(HashStore(), 0, [4, 7], "127.0.0.1")


@pytest.mark.parametrize("how", ["inserted", "repeated", "changed", "huge"])
def test_bytes_that_no_member_sent_end_the_connection_and_are_never_taken(how):
    first, second = connected(2)
    second.publish(Header(1, 2))
    first.publish(Header(1, 2))
    assert taken(first) == [Header(1, 2)] * 2
    sent = headers._HEADER.pack(1, 2, second._tag_key.tag(headers._NUMBERED.pack(1, 1, 1, 2)))
    forged = {
        "inserted": headers._HEADER.pack(3, 4, bytes(16)),
        "repeated": sent,
        "changed": headers._HEADER.pack(3, 4, second._tag_key.tag(headers._NUMBERED.pack(1, 2, 1, 2))),
        "huge": bytes(10**6),
    }
    (to_first,) = second._peers
    to_first.socket.setblocking(True)
    to_first.socket.sendall(forged[how][:100_000])
    first.publish(Header(3, 4))
    with pytest.raises(RuntimeError, match="the connection to rank 1 carried bytes not of its own"):
        taken(first)
    assert first.hung_up() == {1: NO_RANK}


def test_nothing_stays_open():
    def open_files():
        return len(os.listdir("/proc/self/fd"))

    before = open_files()
    for _ in range(20):
        for member in connected(3):
            member.close()
    assert open_files() <= before
