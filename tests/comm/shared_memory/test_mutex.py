"""A mutex that one member holds at a time, and that no death keeps locked."""

import os
import subprocess
import sys

import pytest

from shoal.comm.alone import alone
from shoal.comm.shared_memory.mutex import Mutex, wait_until
from shoal.comm.threads.group import run_threads
from shoal.errors import GroupError

HOLDER = """
import fcntl, os, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_one_member_at_a_time():
    inside, most = [], []

    def work(group):
        mutex = Mutex(group, "a test")
        for _ in range(30):
            with mutex:
                inside.append(group.rank)
                most.append(len(inside))
                os.sched_yield()
                inside.pop()
        group.barrier().wait()

    run_threads(3, work)
    assert len(most) == 90
    assert max(most) == 1


def test_a_member_that_is_killed_gives_it_back():
    mutex = Mutex(alone(), "a test")
    path = f"/proc/{os.getpid()}/fd/{mutex._file}"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        assert not mutex._try()
        holder.kill()
        with mutex:
            assert holder.wait() < 0


def test_a_wait_ends_when_a_member_has_failed():
    def work(group):
        if group.rank == 1:
            raise ValueError("broken")
        with pytest.raises(GroupError, match="rank 1"):
            wait_until(group, lambda: False, "a flag")

    with pytest.raises(ValueError, match="broken"):
        run_threads(2, work)
