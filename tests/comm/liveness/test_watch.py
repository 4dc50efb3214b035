"""What can be seen of another process: that it is stopped, that it is kept from running, that it is gone."""

import os
import signal
import subprocess
import sys
import time

import pytest
import throttling

from shoal.comm.liveness.watch import ProcessWatch


@pytest.fixture
def busy():
    """A process that runs for ever."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "print(flush=True)\nwhile True: pass"], stdout=-1)
    process.stdout.read(1)
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def watch(busy):
    watch = ProcessWatch()
    watch.add([busy.pid])
    yield watch
    watch.close()


def looks(watch, pid, seconds):
    """The longest stop that looks within so many seconds find."""
    deadline = time.monotonic() + seconds
    longest_s = 0.0
    while time.monotonic() < deadline:
        longest_s = max(longest_s, watch.stopped_s(pid))
        time.sleep(0.1)
    return longest_s


def test_a_stop_is_seen_and_so_is_its_end(watch, busy):
    assert looks(watch, busy.pid, 0.5) == 0
    busy.send_signal(signal.SIGSTOP)
    assert looks(watch, busy.pid, 0.8) > 0.4
    busy.send_signal(signal.SIGCONT)
    while watch.stopped_s(busy.pid):  # until the signal has arrived
        time.sleep(0.01)
    assert looks(watch, busy.pid, 0.5) == 0


def test_a_process_that_is_stopped_and_continued_in_turn_is_not_stopped(watch, busy):
    """An observer finds it stopped 95 times out of 100, and yet it runs."""
    with throttling._by_turns(busy.pid) as periods:
        assert looks(watch, busy.pid, 1.5) < 0.5
        assert periods() > 3


def test_a_process_without_a_processor_is_starved_and_an_endless_loop_is_not(watch, busy):
    cores, rivals = os.sched_getaffinity(0), []
    try:
        began = time.monotonic()
        assert watch.starved_s(busy.pid, "first silence") == 0
        # On one core with three rivals it gets a quarter of the time.
        os.sched_setaffinity(busy.pid, {min(cores)})
        rivals = [
            subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"], preexec_fn=lambda: _pin(cores))
            for _ in range(3)
        ]
        time.sleep(1.0)
        starved_s = watch.starved_s(busy.pid, "first silence")
        assert 0.3 < starved_s <= time.monotonic() - began
        assert watch.starved_s(busy.pid, "second silence") == 0, "each silence is measured by itself"
    finally:
        for rival in rivals:
            rival.kill()
            rival.wait()


def _pin(cores):
    os.sched_setaffinity(0, {min(cores)})


@pytest.mark.parametrize("missing", [(), ("pidfd_open",)])
def test_a_death_is_seen_also_where_the_system_has_no_descriptors_for_processes(monkeypatch, busy, missing):
    for name in missing:
        monkeypatch.delattr(os, name)
    watch = ProcessWatch()
    watch.add([busy.pid])
    assert not watch.dead(busy.pid)
    busy.kill()
    deadline = time.monotonic() + 5
    while not watch.dead(busy.pid):  # it is a zombie until its parent asks
        assert time.monotonic() < deadline
    busy.wait()
    assert watch.dead(busy.pid)
    watch.close()
