"""The address of this machine is found; a user's variable counts more; a master that others cannot reach is refused."""

import os
import socket

import pytest

from shoal.comm.rendezvous import network, store
from shoal.comm.rendezvous.network import own_address, problem_of, tell_nccl, wait_for_name
from shoal.comm.rendezvous.store import check_master, connect, listen
from shoal.errors import JoinError, JoinTimeoutError


@pytest.fixture
def names(monkeypatch):
    """Names that resolve as the test says."""
    known = {"node01": "127.0.1.1", "node02": "192.0.2.2", "localhost": "127.0.0.1"}
    real = socket.getaddrinfo

    def resolve(host, *words, **options):
        return real(known.get(host, host), *words, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


@pytest.mark.parametrize(
    ("host", "local_size", "fits"),
    [
        ("192.0.2.2", "", True),
        ("node02", "1", True),
        ("127.0.0.1", "", True),
        ("localhost", "", True),
        ("node01", "2", True),
        ("node01", "", False),
        ("node01", "1", False),
        ("localhost", "1", True),
    ],
)
def test_a_master_that_no_other_machine_reaches_is_refused(names, host, local_size, fits):
    if fits:
        check_master(host, 2, local_size)
        return
    with pytest.raises(JoinError, match=r"127\.0\.[01]\.1"):
        check_master(host, 2, local_size)


def test_in_kubernetes_a_name_is_waited_for(monkeypatch):
    asked = []

    def resolve(host, *_, **__):
        asked.append(host)
        if len(asked) < 3:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.9", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(network, "ASK_EVERY_S", 0.0)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    wait_for_name("job-0.job", 100.0)
    assert asked == []
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    wait_for_name("job-0.job", 100.0)
    assert len(asked) == 3


def test_the_interface_that_the_user_names_counts_more(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no-such0,lo")
    assert own_address("192.0.2.2", 29517) == "127.0.0.1"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no-such0")
    with pytest.raises(JoinError, match="no-such0"):
        own_address("192.0.2.2", 29517)


def test_nccl_gets_the_interface_of_the_address_unless_the_user_chose(monkeypatch):
    monkeypatch.setattr(network, "interfaces", lambda: {"lo": "127.0.0.1", "eth7": "192.0.2.7"})
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "mine")
    tell_nccl("192.0.2.7")
    assert os.environ["NCCL_SOCKET_IFNAME"] == "mine"
    monkeypatch.delenv("NCCL_SOCKET_IFNAME")
    tell_nccl("127.0.0.1")
    assert "NCCL_SOCKET_IFNAME" not in os.environ
    tell_nccl("192.0.2.7")
    assert os.environ.pop("NCCL_SOCKET_IFNAME") == "=eth7"


def test_an_address_of_another_machine_is_told_from_a_port_that_is_taken():
    with pytest.raises(JoinError) as elsewhere:
        listen("192.0.2.254", 0)
    with listen("127.0.0.1", 0) as taken, pytest.raises(JoinError) as twice:
        listen("127.0.0.1", taken.getsockname()[1])
    assert elsewhere.value.hint != twice.value.hint


def test_a_port_where_nothing_listens_and_one_where_something_does():
    with listen("127.0.0.1", 0) as server:
        port = server.getsockname()[1]
        assert problem_of("127.0.0.1", port, 10.0) is None
    assert isinstance(problem_of("127.0.0.1", port, 10.0), ConnectionRefusedError)


def test_a_machine_that_nothing_reaches_is_given_up_before_the_time_limit(monkeypatch):
    """One that refuses is there, and is waited for until the limit."""
    monkeypatch.setattr(store, "UNREACHED_S", 0.0)
    monkeypatch.setattr(store, "problem_of", lambda *_: TimeoutError())
    with pytest.raises(JoinTimeoutError, match="192.0.2.2:29517"):
        connect("192.0.2.2", 29517, rank=1, timeout_s=1e6)
    monkeypatch.setattr(store, "problem_of", lambda *_: ConnectionRefusedError(111, "Connection refused"))
    with pytest.raises(JoinTimeoutError, match="within 0.3 s"):
        connect("192.0.2.2", 29517, rank=1, timeout_s=0.3)
