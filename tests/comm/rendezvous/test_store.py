"""A store that does not answer is no reason to wait for ever; addresses are of the master's kind."""

import socket
import threading

import pytest
from torch.distributed import HashStore

from shoal.comm.rendezvous import store as stores
from shoal.comm.rendezvous.network import own_address
from shoal.comm.rendezvous.store import Distant, connect, listen
from shoal.errors import JoinError


class Silent:
    """A store behind a network that is down."""

    def __init__(self):
        self.num_asked = 0
        self.over = threading.Event()

    def get(self, key):
        self.num_asked += 1
        self.over.wait(30)


def test_an_attempt_to_connect_that_never_ends_is_followed_by_another(monkeypatch):
    first, over, found = threading.Event(), threading.Event(), HashStore()

    def tcp_store(*_, **__):
        if not first.is_set():
            first.set()
            over.wait(30)
            raise RuntimeError("the first attempt")
        return found

    monkeypatch.setattr(stores.dist, "TCPStore", tcp_store)
    monkeypatch.setattr(stores, "ATTEMPT_S", 0.1)
    with listen("127.0.0.1", 0) as server:
        assert connect("127.0.0.1", server.getsockname()[1], rank=1, timeout_s=30) is found
    over.set()


def test_a_distant_store_answers_like_any_other():
    store = Distant(HashStore(), 10.0)
    store.set("a", "1")
    store.set("b", "2")
    assert (store.get("a"), store.multi_get(["a", "b"])) == (b"1", [b"1", b"2"])
    assert (store.check(["a", "b"]), store.check(["a", "c"])) == (True, False)
    store.close()


def test_who_never_answers_is_asked_once():
    silent = Silent()
    store = Distant(silent, 0.1)
    for _ in range(3):
        with pytest.raises(RuntimeError, match=r"no answer for 0.1 s"):
            store.get("a")
    assert silent.num_asked == 1
    silent.over.set()


def test_a_store_that_is_gone_is_gone_for_good():
    class Gone:
        def get(self, key):
            raise RuntimeError("Broken pipe")

    store = Distant(Gone(), 60.0)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Broken pipe"):
            store.get("a")


def has_address(address):
    try:
        listen(address, 0).close()
    except JoinError:
        return False
    return True


@pytest.mark.parametrize("master", ["127.0.0.1", "127.0.0.2", "::1"])
def test_a_worker_listens_where_the_master_reaches_it(master):
    """Each at an address of the master's own kind; a machine without IPv6 has none of that."""
    kind = socket.AF_INET6 if ":" in master and has_address(master) else socket.AF_INET
    with listen(own_address(master, 29517), 0) as server:
        assert server.family == kind
