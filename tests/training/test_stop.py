"""A signal to a run: before its first step it ends at once; after a step, every rank knows the signal."""

import signal
from contextlib import suppress

import pytest
import torch

from shoal.cli.main import main
from shoal.comm.threads.group import run_threads
from shoal.config.read import read
from shoal.errors import WorkerError
from shoal.launch.supervise import SignalRelay
from shoal.training import worker
from shoal.training.observer import Silent
from shoal.training.stop import Series, StopRequest

OWN_DATA = """
import signal, threading, time

class Interrupted:
    def __init__(self, number):
        self.number = number

    def __del__(self):  # Python drops exceptions that leave this method
        signal.raise_signal(self.number)

def read(number: int, place: str = "code"):
    if threading.current_thread().name != "rank 1":
        signal.raise_signal(number) if place == "code" else Interrupted(number)
    for _ in range(500):  # a thread reads on after the run has ended, and the next run in this process waits for it
        time.sleep(0.01)
    raise AssertionError("the data are read on")
"""


@pytest.mark.parametrize("place", ["code", "destructor"])
@pytest.mark.parametrize("launcher", ["--strategy single", "--strategy naive --workers 2 --launcher threads"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_data_are_read_ends_the_run_at_once(
    tmp_path, monkeypatch, capsys, launcher, number, place
):
    (tmp_path / "own_data.py").write_text(OWN_DATA)
    monkeypatch.syspath_prepend(tmp_path)
    words = f"--data own_data:read --data.number {int(number)} --data.place {place} --model mlp --epochs 1 {launcher}"
    assert (
        main(["train", *words.split(), "--device", "cpu", "--runs-dir", str(tmp_path / "runs"), "--quiet"])
        == 128 + number
    )
    assert "interrupted" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_rank_that_serves_ends_with_the_signal_of_the_workers(tmp_path):
    """Started by hand, its exit code is made of that."""
    words = "--data synthetic --data.samples 60 --data.shape 1,4,4 --data.classes 3 --model mlp --device cpu "
    words += "--strategy server --workers 2 --launcher threads --batch-size 20 --epochs 9 --name run"
    config = read(None, [*words.split(), "--runs-dir", str(tmp_path)])

    def work(group):
        stop = StopRequest()
        stop.signal = signal.SIGTERM if group.rank == 1 else 0
        return worker.work(config, torch.device("cpu"), stop, Silent(), group)

    assert [result.stopped_by for result in run_threads(3, work)] == [signal.SIGTERM] * 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("taken_by", [StopRequest, SignalRelay])
@pytest.mark.parametrize("fails", [False, True])
def test_a_signal_during_a_run_ends_the_series_although_the_run_is_completed_or_fails(
    number, taken_by, fails
):
    begun = []

    def two_runs():
        for run in range(2):
            begun.append(run)
            with suppress(WorkerError), taken_by() as taken:
                taken.run_has_begun = True
                signal.raise_signal(number)
                if fails:  # as a run of a lab whose worker has a fault on purpose
                    raise WorkerError("rank 1 of 2 was killed", "", 1)

    with pytest.raises(KeyboardInterrupt, match=number.name), Series():
        two_runs()
    assert begun == [0]
    with StopRequest():
        pass  # a later run of the same process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_between_runs_ends_the_series_also_if_the_exception_is_lost(number):
    def lose_it_and_go_on():
        with suppress(KeyboardInterrupt):  # as in code that Python calls and whose exceptions it only prints
            signal.raise_signal(number)
        with StopRequest():
            pytest.fail("the next run must not begin")

    with pytest.raises(KeyboardInterrupt, match=number.name), Series():
        lose_it_and_go_on()
