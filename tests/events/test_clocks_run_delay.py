"""The time that threads are ready but not scheduled: measured where Linux counts it, unknown elsewhere."""

import threading

import pytest

from shoal.events import clocks
from shoal.events.clocks import RunDelay


@pytest.fixture
def delays_ns(monkeypatch):
    """What the kernel has counted for each thread so far, and a clock that stands at one second."""
    found, now_ns = {"1": 5_000_000_000, "2": 0}, iter((0, 1_000_000_000))
    monkeypatch.setattr(clocks, "delays_ns", lambda: dict(found))
    monkeypatch.setattr(clocks.time, "perf_counter_ns", lambda: next(now_ns))
    return found


def test_the_most_delayed_thread_counts_since_the_start(delays_ns):
    delay = RunDelay()
    delays_ns |= {"1": 5_100_000_000, "2": 250_000_000, "3": 50_000_000}
    assert delay.fraction() == 0.25


def test_a_thread_that_has_ended_is_left_out(delays_ns):
    delay = RunDelay()
    del delays_ns["2"]
    assert delay.fraction() == 0


def test_without_the_kernels_statistics_it_is_unknown(delays_ns):
    delay = RunDelay()
    delays_ns.clear()
    assert delay.fraction() is None


def test_threads_of_this_process_are_read():
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        fraction = RunDelay().fraction()
        assert fraction is None or fraction >= 0
    finally:
        done.set()
        thread.join()
