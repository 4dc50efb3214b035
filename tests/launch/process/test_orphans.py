"""The process that ends orphans: it is silent on Ctrl-C, and survives a stop to do its work."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

LAUNCHER = """
import os, signal, sys, time
from shoal.launch.process.child import start_program
from shoal.launch.process.orphans import orphan_killer
signal.signal(signal.SIGINT, lambda *_: None)
with orphan_killer() as killer:
    # What a worker has started: it does not die with the launcher.
    sleeper = start_program(["/bin/sleep", "100"], {}, parents_death=0)
    killer.watch(sleeper.pid)
    print(killer.pid, sleeper.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def launcher():
    """(process, its killer of orphans, what that watches); the launcher has a process group of its own."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", LAUNCHER], **pipes, text=True, process_group=0) as process:
        killer, sleeper = map(int, process.stdout.readline().split())
        yield process, killer, sleeper
        process.kill()


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


def test_ctrl_c_at_any_moment_makes_it_print_nothing(launcher):
    process, killer, sleeper = launcher
    for _ in range(30):  # from before Python has started in it
        os.killpg(process.pid, signal.SIGINT)
        os.kill(killer, signal.SIGINT)
        time.sleep(0.01)
    assert lives(killer)
    os.kill(sleeper, signal.SIGKILL)
    _, said = process.communicate(timeout=30)
    assert said == ""
    assert not lives(killer), "a launcher that ends takes it along"


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_killed_launcher_leaves_neither_it_nor_an_orphan(launcher, is_stopped):
    process, killer, sleeper = launcher
    if is_stopped:
        # A child that has not reached its program may not have asked for its parent's death yet.
        wait_until(lambda: b"orphans.py" in Path(f"/proc/{killer}/cmdline").read_bytes())
        os.kill(killer, signal.SIGSTOP)
    process.kill()
    wait_until(lambda: not lives(sleeper) and not lives(killer))
