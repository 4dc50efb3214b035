"""A signal to a run: before its first step it ends at once; after a step, every rank knows the signal."""

import signal

import pytest
import torch

from shoal.cli.main import main
from shoal.comm.threads.group import run_threads
from shoal.config.read import read
from shoal.training import worker
from shoal.training.observer import Silent
from shoal.training.stop import StopRequest

OWN_DATA = """
import signal, threading, time

def read(number: int):
    if threading.current_thread().name != "rank 1":
        signal.raise_signal(number)
    for _ in range(500):  # a thread reads on after the run has ended, and the next run in this process waits for it
        time.sleep(0.01)
    raise AssertionError("the data are read on")
"""


@pytest.mark.parametrize("launcher", ["--strategy single", "--strategy naive --workers 2 --launcher threads"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_data_are_read_ends_the_run_at_once(
    tmp_path, monkeypatch, capsys, launcher, number
):
    (tmp_path / "own_data.py").write_text(OWN_DATA)
    monkeypatch.syspath_prepend(tmp_path)
    words = f"--data own_data:read --data.number {int(number)} --model mlp --epochs 1 --device cpu {launcher}"
    assert main(["train", *words.split(), "--runs-dir", str(tmp_path / "runs"), "--quiet"]) == 128 + number
    assert "interrupted" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_rank_that_serves_ends_with_the_signal_of_the_workers(tmp_path):
    """Started by hand, its exit code is made of that."""
    words = "--data synthetic --data.samples 60 --data.shape 1,4,4 --data.classes 3 --model mlp --device cpu "
    words += "--strategy server --workers 2 --launcher threads --batch-size 20 --epochs 9 --name run"
    config = read(None, [*words.split(), "--runs-dir", str(tmp_path)])

    def work(group):
        stop = StopRequest()
        stop.signal = signal.SIGTERM if group.rank == 1 else None
        return worker.work(config, torch.device("cpu"), stop, Silent(), group)

    assert [result.stopped_by for result in run_threads(3, work)] == [signal.SIGTERM] * 3
