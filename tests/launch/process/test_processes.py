"""Workers as processes: a worker that is stopped or cannot be killed keeps the launcher from nothing."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from shoal.launch.handle import end_all
from shoal.launch.process.processes import ProcessHandle, ProcessTask, run
from shoal.launch.supervise import Policy


class Unkillable:
    """A process in state D: signals reach it, and it does not end."""

    pid = 2**22 + 1  # more than any process number

    def poll(self):
        return None

    def wait(self, timeout):
        raise subprocess.TimeoutExpired("worker", timeout)


def test_a_process_that_cannot_be_killed_is_named_and_left():
    read_end, write_end = os.pipe()
    handle = ProcessHandle(1, read_end, Unkillable(), None)
    assert end_all([handle], wait_s=0.1) == [handle]
    assert handle.name() == f"rank 1 (process {Unkillable.pid})"
    os.close(write_end)


def test_a_stopped_process_is_seen_and_ended():
    read_end, write_end = os.pipe()
    command = [sys.executable, "-S", "-c", "import time; print(flush=True); time.sleep(60)"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    process.stdout.read(1)
    handle = ProcessHandle(0, read_end, process, None)
    assert handle.stopped_s() == 0
    os.kill(process.pid, signal.SIGSTOP)
    deadline = time.monotonic() + 5
    while handle.stopped_s() < 0.1:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert end_all([handle]) == []
    process.stdout.close()
    os.close(write_end)


PROGRAMS = {
    "while it starts": ("if rank == 0: stop()\nimport shoal\nshoal.join()\n", 0),
    "after its last collective": ("import shoal\nshoal.join().barrier().wait()\nif rank == 1: stop()\n", 1),
}


@pytest.mark.parametrize("moment", PROGRAMS)
def test_a_worker_that_is_stopped_at_any_moment_is_named(tmp_path, monkeypatch, moment):
    text, rank = PROGRAMS[moment]
    program = tmp_path / "program.py"
    program.write_text(
        "import os, pathlib, signal\nrank = int(os.environ['RANK'])\n"
        "def stop():\n"
        "    pathlib.Path(__file__).with_name('proof').touch()\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n" + text
    )
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    task = ProcessTask({"kind": "program", "path": str(program), "arguments": [], "group": "shm"})
    with pytest.raises(Exception, match=re.escape(f"rank {rank} of 2 is stopped (SIGSTOP)")):
        run(task, 2, policy=Policy(stopped_s=2.0))
    assert (tmp_path / "proof").exists()
