"""Machines try their connections before torch does."""

import threading

import pytest
from torch.distributed import HashStore

from shoal.comm.rendezvous import reach
from shoal.comm.rendezvous.meet import Card
from shoal.comm.rendezvous.reach import check_reach, machines_of
from shoal.comm.rendezvous.tagged_store import TaggedStore
from shoal.errors import JoinError


def card(rank, boot):
    return Card(rank, f"host-{boot}", boot, "", 1, {}, address=f"127.0.0.{rank + 1}")


CARDS = [card(0, "a"), card(1, "a"), card(2, "b"), card(3, "c")]


def errors_of_all():
    """What `check_reach` raised, by rank."""
    store, errors = HashStore(), {}

    def work(each):
        tagged = TaggedStore(store, each.rank)
        while not tagged.begin():
            pass
        try:
            check_reach(tagged, CARDS, each.rank, each.address)
        except JoinError as error:
            errors[each.rank] = error.message

    threads = [threading.Thread(target=work, args=(each,)) for each in CARDS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_the_first_worker_of_each_machine_stands_for_it():
    assert list(machines_of(CARDS)) == [0, 2, 3]


def test_machines_that_reach_each_other_go_on():
    assert errors_of_all() == {}


@pytest.mark.parametrize("problem", [TimeoutError(), OSError(113, "No route to host")])
def test_one_closed_way_is_the_same_error_on_all_workers(monkeypatch, problem):
    def closed_to_c(host, port, limit_s):
        return problem if host == "127.0.0.4" else None

    monkeypatch.setattr(reach, "problem_of", closed_to_c)
    errors = errors_of_all()
    assert set(errors) == {0, 1, 2, 3}
    assert len(set(errors.values())) == 1
    assert all(words in errors[0] for words in ("host-a", "127.0.0.1", "host-c", "127.0.0.4"))
