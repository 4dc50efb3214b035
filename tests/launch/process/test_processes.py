"""Workers as processes: a worker that is stopped or cannot be killed keeps the launcher from nothing."""

import os
import re
import signal
import sys
import time

import pytest

from shoal.errors import WorkerError
from shoal.launch.handles import end_all
from shoal.launch.process.child import ChildProcess, start_program
from shoal.launch.process.processes import ProcessHandle, ProcessTask, run
from shoal.launch.supervise import Policy


class Unkillable(ChildProcess):
    """A process in state D: signals reach it, and it does not end."""

    def __init__(self):
        super().__init__(2**22 + 1)  # more than any process number

    def poll(self):
        return None

    def wait(self, timeout):
        return None


def test_a_process_that_cannot_be_killed_is_named_and_left():
    read_end, write_end = os.pipe()
    handle = ProcessHandle(1, read_end, Unkillable(), None)
    assert end_all([handle], wait_s=0.1) == [handle]
    assert handle.name() == f"rank 1 (process {Unkillable().pid})"
    os.close(write_end)


def test_a_stopped_process_is_seen_and_ended():
    read_end, write_end = os.pipe()
    process = start_program([sys.executable, "-S", "-c", "import time; time.sleep(60)"], {})
    handle = ProcessHandle(0, read_end, process, None)
    assert handle.stopped_s() == 0
    os.kill(process.pid, signal.SIGSTOP)
    deadline = time.monotonic() + 5
    while handle.stopped_s() < 0.1:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert end_all([handle]) == []
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


def test_a_worker_that_is_stopped_before_its_program_is_loaded_is_named(tmp_path, monkeypatch):
    really, proof = os.execve, tmp_path / "proof"

    def stop_rank_1(path, arguments, environment):
        if environment.get("RANK") == "1":
            proof.touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        really(path, arguments, environment)

    monkeypatch.setattr(os, "execve", stop_rank_1)
    monkeypatch.delattr(os, "pidfd_open")  # then workers are no copies of a template
    (tmp_path / "program.py").write_text("import time\ntime.sleep(60)\n")
    task = ProcessTask(
        {"kind": "program", "path": str(tmp_path / "program.py"), "arguments": [], "group": "shm"}
    )
    with pytest.raises(WorkerError, match=re.escape("rank 1 of 2 is stopped (SIGSTOP)")):
        run(task, 2, policy=Policy(stopped_s=0.5))
    assert proof.exists()


def test_a_program_that_cannot_be_started_says_why(capfd):
    process = start_program(["/no/such/program"], {})
    assert process.wait(10) == 127
    assert "cannot start /no/such/program: No such file" in capfd.readouterr().err
