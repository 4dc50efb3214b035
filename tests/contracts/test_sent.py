"""`sent` means the same for every strategy on every group: what leaves a worker with ring algorithms."""

from threading import Event

import pytest
from group_worlds import World

from sent import AGREEING, CASES, MAPPING, N, trained
from shoal.codecs.build import CODECS
from shoal.comm.threads.group import run_threads
from shoal.strategies.server.worker import ServerWorker
from shoal.strategies.strategy import EndOfTurns

BY_THREADS = [(name, 3 if name in CODECS else 4) for name, case in CASES.items() if "threads" in case.groups]
BY_THREADS += [
    (name, 2) for name in ("ddp", "dp", "zero 3", "server asp", "pipeline", "tensor", "by:all_gather_sum")
]
"""All with four workers (codecs: three), and one formula of each kind with two; real processes send all with both."""


def check(name, workers, kind, found):
    case = CASES[name]
    assert len(set(found)) == 1, "all ranks report the mean over the workers"
    sent, mapped = found[0]
    assert case.is_right(workers, sent), (sent / N, case.sent(workers) / N, case.formula)
    expected = case.mapped(workers) if kind in MAPPING else 0.0
    assert 0 <= mapped - expected <= AGREEING + case.padding(workers)
    return sent


def size_of(name, workers, kind, folder):
    """Members of the world: a server is one."""
    return workers + CASES[name].config(workers, kind, str(folder)).num_servers


@pytest.mark.parametrize(("name", "workers"), BY_THREADS)
def test_threads_send_what_the_formula_says(tmp_path, name, workers):
    size = size_of(name, workers, "threads", tmp_path)
    found = run_threads(size, lambda group: trained(group, name, workers, "threads", str(tmp_path)))
    check(name, workers, "threads", found)


def test_a_worker_that_finds_no_free_share_has_pulled_all_the_same(tmp_path, monkeypatch):
    others_are_done, next_turn = Event(), ServerWorker.next_turn

    def late_on_rank_0(worker, first, end):
        if worker.data_rank == 0:
            assert others_are_done.wait(30)
        turn = next_turn(worker, first, end)
        if isinstance(turn, EndOfTurns):
            others_are_done.set()
        return turn

    monkeypatch.setattr(ServerWorker, "next_turn", late_on_rank_0)
    test_threads_send_what_the_formula_says(tmp_path, "server asp", 4)


@pytest.mark.long
def test_shared_memory_and_gloo_send_the_same(tmp_path):
    sent, workers = {}, 4
    for kind in ("shm", "gloo"):
        for extra in range(3):  # servers
            names = [
                name
                for name, case in CASES.items()
                if kind in case.groups and size_of(name, workers, kind, tmp_path) == workers + extra
            ]
            with World(kind, workers + extra, limit_s=60.0) as world:
                for name in names:
                    outcomes = world.run(trained, name, workers, kind, str(tmp_path), timeout_s=60)
                    assert [each.message for each in outcomes if each.error or each.gone] == [], name
                    sent[name, kind] = check(name, workers, kind, [each.value for each in outcomes])
    both = [name for name in CASES if (name, "shm") in sent and (name, "gloo") in sent]
    assert len(both) > 30
    for name in both:
        assert abs(sent[name, "shm"] - sent[name, "gloo"]) <= AGREEING, name


def test_a_wrong_count_is_noticed():
    """The sum of buffers, as a group counts what it is given, is no ring."""
    assert not CASES["ddp"].is_right(4, N)
    assert not CASES["zero 3"].is_right(2, 0.5 * N)
