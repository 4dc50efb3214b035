"""Workers as copies of this process."""

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from shoal.cli.main import main
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


def test_a_copy_runs_its_own_exit_functions_and_writes_its_own_buffers(tmp_path):
    path, opened = tmp_path / "log.txt", []

    def work(reporter):
        opened.append((tmp_path / "of_copy.txt").open("w"))
        opened[-1].write("written at the end")
        atexit.register((tmp_path / "at_exit.txt").touch)
        reporter.finished()

    of_parent = tmp_path / "of_parent.txt"
    atexit.register(of_parent.touch)
    try:
        with path.open("w") as log:
            log.write("once")
            forks.run(work, 1)
            assert path.read_text() == ""
    finally:
        atexit.unregister(of_parent.touch)
    assert path.read_text() == "once"
    assert (tmp_path / "of_copy.txt").read_text() == "written at the end"
    assert (tmp_path / "at_exit.txt").exists()
    assert not of_parent.exists()


@pytest.mark.parametrize(
    ("threads", "uses_gpu", "is_alone"), [(1, False, True), (2, False, False), (1, True, False)]
)
def test_a_process_with_threads_or_a_gpu_in_use_is_not_alone(monkeypatch, threads, uses_gpu, is_alone):
    monkeypatch.setattr(threading, "active_count", lambda: threads)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: uses_gpu)
    assert forks.is_alone() is is_alone


COMMAND = """
import json, os, sys, threading
from shoal.cli.main import main
forks, lines = [], []
os.register_at_fork(before=lambda: forks.append("torch" in sys.modules))
write = sys.stderr.write
sys.stderr.write = lambda text: lines.append(["torch" in sys.modules, text]) or write(text)
if sys.argv[1] == "own code":
    import mine
if sys.argv[1] == "thread":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
assert main(sys.argv[2:]) == 0
print(json.dumps({"forks": forks, "lines": lines, "has_mine": "mine" in sys.modules}))
"""
MINE = """
def net():
    from torch import nn
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("beside", "model", "copies"),
    [
        ("nothing", "linear", 2),
        ("thread", "linear", 0),  # copies would lack the thread
        ("nothing", "mine:net", 2),
        ("own code", "mine:net", 0),  # workers load it themselves
    ],
)
def test_the_command_loads_torch_once_and_workers_are_copies_of_it(
    tmp_path, monkeypatch, capsys, beside, model, copies
):
    (tmp_path / "mine.py").write_text(MINE)
    words = "--json --data synthetic --data.samples 60 --data.shape 1,4,4 --data.classes 3 --epochs 1 --device cpu"
    words = ["train", *words.split(), "--strategy", "ddp", "--workers", "2", "--model", model]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, beside, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    result, seen = map(json.loads, done.stdout.splitlines())
    assert seen["lines"][0] == [False, "starting 2 workers\n"], "before torch is loaded"
    killer_of_orphans = 1
    assert sum(seen["forks"]) - killer_of_orphans == (copies or 1), (
        "a template is started, and makes the copies"
    )
    assert seen["has_mine"] is (beside == "own code"), "only workers load it"
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--launcher", "threads"]) == 0
    assert result["weights_sha256"] == json.loads(capsys.readouterr().out)["weights_sha256"]


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
    assert len(seen) == 4, "the killer of orphans is forked, too"
    assert max(seen) <= 0  # fewer, if a store of an earlier test ends meanwhile


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
