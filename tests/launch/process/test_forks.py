"""Workers as copies of this process."""

import os
import signal
from pathlib import Path

import pytest
import torch

from shoal.errors import ConfigError, WorkerError
from shoal.launch.process import forks
from shoal.launch.supervise import Listener, Policy


def test_a_killed_copy_is_named():
    def work(reporter):
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        reporter.finished()

    with pytest.raises(WorkerError, match="rank 1"):
        forks.run(work, 2)


def test_no_copy_outlives_a_failure():
    children = []

    def work(reporter):
        if os.environ["RANK"] == "0":
            raise KeyError("the first")
        reporter.send(kind="pid", pid=os.getpid())
        signal.pause()

    class Listener(forks.Listener):
        def heard(self, rank, report):
            children.append(report["pid"])

    with pytest.raises(WorkerError, match="KeyError: 'the first'"):
        forks.run(work, 2, Listener(), Policy(grace_s=1.0))
    for pid in children:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_process_that_has_used_a_gpu_is_not_copied(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(ConfigError, match="has used the GPU, so its workers cannot be copies of it"):
        forks.run(lambda reporter: None, 2)


def test_no_copy_is_made_of_a_process_in_which_torchs_store_has_its_thread(monkeypatch):
    """What that thread locks at the moment of a fork would stay locked in the copy, which could then never join."""

    def store_threads():
        names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
        return sum("tcpstore" in name for name in names)

    before, seen = store_threads(), []
    fork = os.fork

    def watched():
        seen.append(store_threads() - before)
        return fork()

    def work(reporter):
        reporter.finished()

    monkeypatch.setattr(os, "fork", watched)
    forks.run(work, 3)
    assert seen == [0] * 4, "the killer of orphans is forked, too"


def test_an_error_text_of_megabytes_is_whole_in_the_log_and_short_in_the_box():
    logged = []

    class Listening(Listener):
        def printed(self, rank, output):
            logged.append(output)

    def work(reporter):
        raise ValueError("first" + "x" * 5_000_000 + "last")

    with pytest.raises(WorkerError) as caught:
        forks.run(work, 1, Listening())
    shown = f"{caught.value.message}{caught.value.hint}{caught.value.traceback}"
    assert len(shown) < 20_000
    assert "failed: ValueError: firstxxx" in caught.value.message
    assert caught.value.message.endswith("xxxlast")
    (log,) = logged
    assert log.count(b"x") >= 5_000_000
