"""Headers reach everyone in order, whatever the network and strangers do."""

import socket
import threading

import pytest
from torch.distributed import HashStore

from shoal.comm.headers import Header, Headers

pytestmark = pytest.mark.timeout(60)


def connected(size, store=None):
    """The headers of all members, made at the same time."""
    store, made = store or HashStore(), [None] * size

    def connect(rank):
        made[rank] = Headers(store, rank, size, "127.0.0.1")

    threads = [threading.Thread(target=connect, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return made


def taken(headers):
    """The next rows, waited for."""
    for _ in range(100):
        rows = headers.take()
        if rows is not None:
            return rows
        headers.wait_for(0.1)
    raise AssertionError("the headers never came")


def test_rows_are_in_rank_order_and_those_of_one_call_together():
    members = connected(3)
    for call in range(2):
        for rank, member in enumerate(members):
            member.tell(Header(call, 10 * call + rank))
    for call in range(2):
        for member in members:
            assert taken(member) == [Header(call, 10 * call + rank) for rank in range(3)]
    assert members[0].take() is None


def test_nothing_is_taken_until_the_last_has_told():
    first, second, third = connected(3)
    first.tell(Header(1, 1))
    second.tell(Header(1, 1))
    assert first.take() is None
    third.tell(Header(1, 1))
    assert taken(first) == [Header(1, 1)] * 3


def test_alone_there_is_nobody_to_hear_from():
    (alone,) = connected(1)
    alone.tell(Header(7, 8))
    assert alone.take() == [Header(7, 8)]


def test_telling_never_blocks_and_loses_nothing():
    ahead, behind = connected(2)
    (to_behind,), (to_ahead,) = ahead._peers, behind._peers
    to_behind.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    to_ahead.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    calls = [Header(call, -call) for call in range(5_000)]
    for call in calls:
        ahead.tell(call)
    assert to_behind._to_send, "the system took everything: nothing was tried"
    for call in calls:
        behind.tell(call)
        while (rows := behind.take()) is None:
            ahead.take()  # whoever waits hands over what is left
        assert rows == [call] * 2


def test_what_a_member_told_before_it_went_counts_and_then_it_is_named():
    stays, goes = connected(2)
    goes.tell(Header(1, 2))
    goes.close()
    stays.tell(Header(1, 2))
    assert taken(stays) == [Header(1, 2)] * 2
    stays.tell(Header(3, 4))
    with pytest.raises(RuntimeError, match="rank 1"):
        taken(stays)


def test_a_stranger_is_not_taken_for_a_member():
    store = HashStore()
    stranger_was_let_go = threading.Event()

    def intrude():
        port, address = store.get("address/0").decode().split(" ", 1)
        with socket.create_connection((address, int(port)), timeout=20) as stranger:
            stranger.sendall(bytes(16) + (1).to_bytes(4, "little"))  # "I am rank 1", without the token
            if stranger.recv(1) == b"":
                stranger_was_let_go.set()

    zero = []
    first = threading.Thread(target=lambda: zero.append(Headers(store, 0, 2, "127.0.0.1")))
    first.start()
    intrude()
    one = Headers(store, 1, 2, "127.0.0.1")
    first.join(30)
    assert stranger_was_let_go.is_set()
    one.tell(Header(5, 6))
    zero[0].tell(Header(5, 6))
    assert taken(zero[0]) == [Header(5, 6)] * 2
