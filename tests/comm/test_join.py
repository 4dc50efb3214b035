"""However a program was started, it gets its group."""

import threading
import warnings
from pathlib import Path

import pytest
import torch
from torch.distributed import HashStore

from shoal.comm import join as joining
from shoal.comm.join import WorkerAddress, join, join_in, place_from_environment, reached_by_others
from shoal.comm.rendezvous.meet import Card
from shoal.comm.rendezvous.secret import UnauthenticatedStoreWarning
from shoal.comm.rendezvous.store import listen, serve
from shoal.errors import ConfigError, JoinError

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29501"}


def test_without_a_launcher(monkeypatch):
    for name in TORCHRUN:
        monkeypatch.delenv(name, raising=False)
    assert (join().rank, join().size) == (0, 1)


def on_two_threads(work):
    """Run `work(place)` for both ranks of a world of two, each on a thread; give the results."""
    with listen("127.0.0.1", 0) as server:
        port = server.getsockname()[1]
    results = {}

    def run(rank):
        try:
            results[rank] = work(WorkerAddress(rank, 2, "127.0.0.1", port))
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [results[0], results[1]]


def total(group):
    value = torch.tensor([float(group.rank + 1)])
    group.all_reduce(value).wait()
    return value.item()


def test_the_machine_of_a_master_that_is_loopback_there_uses_its_route_to_another(monkeypatch):
    monkeypatch.setattr(joining, "own_address", lambda host, port: {"10.0.0.2": "10.0.0.1"}[host])
    first = Card(0, "a", "boot a", "", 1, {}, address="127.0.0.1")
    neighbour = Card(1, "a", "boot a", "", 2, {}, address="127.0.0.1")
    second = Card(2, "b", "boot b", "", 1, {}, address="10.0.0.2")
    assert reached_by_others(first, [first, neighbour, second]) == "10.0.0.1"
    assert reached_by_others(neighbour, [first, neighbour, second]) == "10.0.0.1"
    assert reached_by_others(second, [first, neighbour, second]) == "10.0.0.2"
    assert reached_by_others(first, [first, neighbour]) == "127.0.0.1"


def test_programs_of_other_versions_do_not_form_a_group():
    def work(place):
        return join(place, kind="gloo", timeout_s=20, facts={"torch": "1.0"} if place.rank else {})

    errors = on_two_threads(work)
    assert all(isinstance(error, JoinError) for error in errors)
    assert all(
        "torch 1.0" in error.message and f"torch {torch.__version__[:3]}" in error.message for error in errors
    )


def test_joining_twice_gives_the_same_group_while_it_is_open():
    def work(place):
        group = join(place, kind="gloo", timeout_s=20)
        again = [join(place), join(place, kind="gloo")]
        sums = [total(group)]
        assert all(each is group for each in again)
        group.close()
        anew = join(place, kind="gloo", timeout_s=20)
        assert anew is not group
        sums.append(total(anew))
        anew.close()
        return sums

    assert on_two_threads(work) == [[3.0, 3.0]] * 2


def test_another_kind_is_another_group_beside_the_first():
    def work(place):
        first = join(place, kind="gloo", timeout_s=20)
        second = join(place, kind="shm", timeout_s=20)
        assert (first.kind, second.kind) == ("gloo", "shm")
        assert join(place) is first
        assert join(place, kind="shm") is second
        sums = [total(second), total(first)]
        second.close()
        first.close()
        return sums

    assert on_two_threads(work) == [[3.0, 3.0]] * 2


def test_alone_too_a_closed_group_is_not_given_again():
    group = join()
    assert join() is group
    group.close()
    assert join() is not group
    assert total(join()) == 1.0


def test_torchrun_holds_its_own_store():
    place = place_from_environment(
        {**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "2"}
    )
    assert place == WorkerAddress(1, 2, "127.0.0.1", 29501, launcher_holds_store=True, attempt="2")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"MASTER_PORT": None}, "not MASTER_PORT"),
        ({"RANK": "one"}, "RANK=one"),
        ({"RANK": "2"}, "rank 2 is not in a world of 2"),
        ({"MASTER_PORT": "99999"}, "MASTER_PORT is 99999"),
        ({"MASTER_PORT": "9" * 5000}, r"MASTER_PORT=9{200}… \(5000 characters\)"),
    ],
)
def test_half_an_environment_is_refused(change, message):
    environment = {name: value for name, value in {**TORCHRUN, **change}.items() if value is not None}
    with pytest.raises(JoinError, match=message):
        place_from_environment(environment)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ConfigError, match="did you mean 'gloo'"):
        join(kind="glo")


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("host", ["no.such.host.invalid", "é" * 70])
def test_an_unknown_master(rank, host):
    with pytest.raises(JoinError, match=f"cannot resolve master address '{host}'"):
        join(WorkerAddress(rank, 2, host, 29501), timeout_s=1)


def test_a_port_that_is_taken():
    with listen("127.0.0.1", 0) as taken, pytest.raises(JoinError, match="cannot listen on 127.0.0.1:"):
        join(WorkerAddress(0, 2, "127.0.0.1", taken.getsockname()[1]), timeout_s=1)


def test_a_store_that_is_not_there():
    with listen("127.0.0.1", 0) as server:
        port = server.getsockname()[1]
    with pytest.raises(JoinError, match=f"rank 1 found no store at 127.0.0.1:{port}"):
        join(WorkerAddress(1, 2, "127.0.0.1", port), timeout_s=1)


def test_a_worker_that_never_starts():
    with pytest.raises(JoinError, match="ranks 1, 2 are missing: 1 of 3 workers joined"):
        join(WorkerAddress(0, 3, "127.0.0.1", 0), timeout_s=0.3)


def listening_on(protocol):
    rows = [line.split() for line in Path(f"/proc/net/{protocol}").read_text().splitlines()[1:]]
    return [row[1] for row in rows if row[3] == "0A"]


def test_the_store_listens_on_loopback_only():
    store = serve(listen("127.0.0.1", 0), 5)
    listening, everywhere = listening_on("tcp"), listening_on("tcp6")
    port = f"{store.port:04X}"
    assert f"0100007F:{port}" in listening
    assert not any(address.endswith(port) for address in everywhere)
    assert f"00000000:{port}" not in listening


def test_a_store_that_other_machines_reach_without_a_secret_is_a_warning_once(monkeypatch):
    """Where rank 0 itself opens it; torchrun's own, for workers of one machine, is torchrun's matter."""
    with pytest.warns(UnauthenticatedStoreWarning, match="SHOAL_SECRET_FILE"):
        join_in(HashStore(), 0, 1, kind="shm", host="10.0.0.1", holder=0).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        join_in(HashStore(), 0, 1, kind="shm", host="10.0.0.1").close()
        join_in(HashStore(), 0, 1, kind="shm", host="127.0.0.1", holder=0).close()
        monkeypatch.setenv("SHOAL_SECRET", "a secret of this run")
        join_in(HashStore(), 0, 1, kind="shm", host="10.0.0.1", holder=0).close()
