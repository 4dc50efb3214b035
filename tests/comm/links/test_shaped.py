"""Links between workers: when messages arrive, what is refused, and that waiting for a link is not being stuck."""

import threading

import pytest
import torch

from shoal.comm.algorithms import ALGORITHMS
from shoal.comm.group import Finished
from shoal.comm.links import shaped as shaped_module
from shoal.comm.links.measure import Measured, link_between, measure_links
from shoal.comm.links.shaped import shaped
from shoal.comm.threads.group import run_threads
from shoal.comm.traced import traced
from shoal.config.conditions import Link
from shoal.errors import ConfigError

SLACK_NS = 150_000


class Time:
    """A clock for all workers that moves only when somebody sleeps, to where the sleeper wants to be."""

    def __init__(self):
        self.now_ns = 0
        self._lock = threading.Lock()

    def clock_ns(self):
        return self.now_ns

    def sleep(self, seconds):
        target = self.now_ns + max(1000, round(1e9 * seconds))
        with self._lock:
            self.now_ns = max(self.now_ns, target)


def on_links(size, links, work):
    time = Time()

    def member(group):
        return work(shaped(group, links, clock_ns=time.clock_ns, sleep=time.sleep), time)

    return run_threads(size, member)


def test_a_message_arrives_when_its_link_allows_and_the_next_one_behind_it():
    all_sent = threading.Event()

    def work(group, time):
        if group.rank == 0:
            for _ in range(3):
                group.send(torch.zeros(1000, dtype=torch.uint8), 1)
            return all_sent.set()
        arrivals = []
        asked = [group.recv(torch.empty(1000, dtype=torch.uint8), 0) for _ in range(3)]
        all_sent.wait(60)
        for work in asked:
            work.wait()
            arrivals.append(time.now_ns)
        return arrivals

    arrivals = on_links(2, [Link((0, 1), bits_per_s=8e6, latency_s=0.005)], work)[1]
    for arrived_ns, expected_ns in zip(arrivals, (6e6, 7e6, 8e6), strict=True):
        assert expected_ns <= arrived_ns <= expected_ns + SLACK_NS


def test_a_sender_waits_for_the_wire_and_not_for_the_receiver():
    gone = threading.Event()

    def work(group, time):
        if group.rank == 0:
            group.send(torch.zeros(1000, dtype=torch.uint8), 1).wait()
            gone_ns = time.now_ns
            gone.set()
            return gone_ns
        assert gone.wait(60), "the sender must not wait for a receiver that is busy"
        received = torch.ones(1000, dtype=torch.uint8)
        group.recv(received, 0).wait()
        return received.any().item() or time.now_ns

    gone_ns, arrived_ns = on_links(2, [Link((0, 1), bits_per_s=8e6, latency_s=0.5)], work)
    assert 1e6 <= gone_ns <= 1e6 + SLACK_NS
    assert 501e6 <= arrived_ns <= 501e6 + 2 * SLACK_NS


def test_directions_and_other_pairs_do_not_share_a_link():
    def swap(peers, links):
        all_sent = threading.Barrier(len(peers))

        def work(group, time):
            group.send(torch.zeros(1000, dtype=torch.uint8), peers[group.rank])
            all_sent.wait(60)
            group.recv(torch.empty(1000, dtype=torch.uint8), peers[group.rank]).wait()
            return time.now_ns

        return max(on_links(len(peers), links, work))

    assert swap([1, 0], [Link((0, 1), bits_per_s=8e6)]) <= 1e6 + 2 * SLACK_NS, "both directions at once"
    assert swap([1, 0, 3, 2], [Link((0, 2), bits_per_s=1.0)]) == 0, "none of these goes from 0 to 2"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_runs_on_links(algorithm):
    def work(group, time):
        buffer = torch.full((10,), float(group.rank))
        ALGORITHMS[algorithm](group, buffer)
        return buffer.tolist()

    assert on_links(3, [Link(None, bits_per_s=8e6, latency_s=1e-4)], work) == [[3.0] * 10] * 3


def test_an_all_reduce_costs_what_its_algorithm_sends():
    """Around a ring of two, each sends half of the buffer twice: 2 × (n / 2) bytes and two latencies."""

    def work(group, time):
        group.all_reduce(torch.zeros(8000, dtype=torch.uint8)).wait()
        return time.now_ns

    taken_ns = max(on_links(2, [Link((0, 1), bits_per_s=8e6, latency_s=0.003)], work))
    assert 14e6 <= taken_ns <= 14e6 + 4 * SLACK_NS


def test_a_barrier_needs_the_latency():
    def work(group, time):
        group.barrier().wait()
        return time.now_ns

    assert all(taken_ns >= 7e6 for taken_ns in on_links(2, [Link((0, 1), 1e9, latency_s=0.007)], work))


def test_a_traced_group_on_links_counts_collectives_not_their_messages():
    def work(group, time):
        group = traced(group)
        group.all_reduce(torch.zeros(10)).wait()
        return {name: total.calls for name, total in group.totals.items()}

    assert on_links(2, [Link((0, 1), 1e9)], work) == [{"all_reduce": 1}] * 2


def test_waiting_for_a_slow_link_is_progress():
    def work(group):
        buffer = torch.ones(1)
        shaped(group, [Link((0, 1), 1e9, latency_s=0.9)]).broadcast(buffer.mul_(group.rank + 1), 0).wait()
        group.barrier().wait()
        return buffer.item()

    assert run_threads(2, work, limit_s=0.7) == [1.0, 1.0]


def test_another_machine_is_refused(monkeypatch):
    class Elsewhere:
        def __init__(self, boot):
            self.boot = boot

        @classmethod
        def of_this_process(cls, rank, facts, able):
            return cls(["here", "there"][rank])

    monkeypatch.setattr(shaped_module, "Card", Elsewhere)
    with pytest.raises(ConfigError, match="rank 1 is on another than rank 0"):
        run_threads(2, lambda group: shaped(group, []))


def test_a_link_that_names_both_ends_comes_before_the_one_for_all():
    links = [Link(None, 1e9), Link((0, 2), 1e6)]
    assert link_between(links, 2, 0) is links[1]
    assert link_between(links, 1, 2) is links[0]
    assert link_between(links[1:], 1, 2) is None


class Peer:
    """Rank 0 of two: the other answers at once, over a link of known rate; the first tries may be disturbed."""

    rank, size = 0, 2

    def __init__(self, bits_per_s, latency_s, hiccups=0):
        self.now_ns, self.bits_per_s, self.latency_s, self.hiccups = 0, bits_per_s, latency_s, hiccups
        self.sent, self.tries = None, 0

    def send(self, tensor, to):
        self.sent = tensor.clone()
        return Finished()

    def recv(self, tensor, sender):
        group = self

        class Arrival:
            def wait(self):
                if tensor.numel() == 0:
                    group.now_ns += round(2e9 * group.latency_s)
                elif tensor.dtype is torch.float64:
                    tensor.copy_(group.sent)
                    group.tries += 1
                else:
                    slow = 3 if group.tries < group.hiccups else 1
                    group.now_ns += round(slow * tensor.nbytes * 8e9 / group.bits_per_s)

        return Arrival()

    def all_gather(self, whole, piece):
        whole[0] = piece
        return Finished()

    def measure(self, link):
        return measure_links(self, [link], lambda: self.now_ns)


@pytest.mark.parametrize("really", [100e6, 60e6])
def test_what_is_measured_is_what_the_link_does(really):
    (measured,) = Peer(really, 0.004).measure(Link((0, 1), bits_per_s=100e6, latency_s=0.004))
    assert measured.bits_per_s == pytest.approx(really, rel=1e-3)
    assert measured.latency_s == pytest.approx(0.004, rel=1e-3)
    assert measured.reached == (really == 100e6)


def test_a_hiccup_is_measured_again():
    peer = Peer(100e6, 0.0, hiccups=2)
    (measured,) = peer.measure(Link(None, bits_per_s=100e6))
    assert (measured.reached, peer.tries) == (True, 3)


def test_all_members_get_every_measured_link():
    links = [Link((0, 1), bits_per_s=8e6, latency_s=0.004), Link((1, 2), bits_per_s=80e6)]
    first, *others = on_links(3, links, lambda group, time: measure_links(group, links, time.clock_ns))
    assert others == [first, first]
    assert [measured.ends for measured in first] == [(0, 1), (1, 2)]


def test_a_measured_link_in_words():
    link = Link((0, 1), bits_per_s=100e6, latency_s=0.005)
    assert str(Measured((0, 1), link, 99.1e6, 0.005)) == (
        "link 0-1: 100 Mbit/s asked, 99.1 measured, latency 5.0 ms"
    )
    assert Measured((0, 1), link, 95.1e6, 0.005).reached
    assert not Measured((0, 1), link, 94.9e6, 0.005).reached
    assert str(Measured((2, 5), Link(None, 2.5e9), 1.234e9, 0.0)).startswith(
        "link 2-5: 2.5 Gbit/s asked, 1.23 "
    )
