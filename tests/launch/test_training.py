"""Training on threads: one machine's torch settings for all of them, and errors that name the rank."""

import signal

import pytest
import torch

from shoal.config.read import read
from shoal.errors import WorkerError
from shoal.events.folder import RunFolder
from shoal.launch.cores import threads_per_worker
from shoal.launch.run import launch_run
from shoal.launch.training import _TrainingListener, by_processes, by_threads
from shoal.training.observer import Silent

TINY = "--data synthetic --data.samples 60 --data.shape 1,4,4 --data.classes 3 --model mlp --model.hidden 8 "
TINY += "--batch-size 20 --epochs 2 --device cpu --strategy naive --workers 2 --launcher threads"


class Watching(Silent):
    def __init__(self):
        self.threads = []

    def stepped(self, progress, loss):
        self.threads.append(torch.get_num_threads())


def test_workers_share_the_cores(tmp_path):
    watching, before = Watching(), torch.get_num_threads()
    result = launch_run(read(None, [*TINY.split(), "--runs-dir", str(tmp_path)]), watching)
    assert (result.status, result.workers, result.steps) == ("completed", 2, 6)
    assert set(watching.threads) == {threads_per_worker(2)}
    assert torch.get_num_threads() == before


def named(folder, name, flags=""):
    return read(None, [*TINY.split(), *flags.split(), "--runs-dir", str(folder), "--name", name])


def test_another_run_follows(tmp_path):
    result = by_threads(named(tmp_path, "one"), Silent(), then=[named(tmp_path, "two", "--steps 3")])
    assert (result.steps, RunFolder(tmp_path / "two").read_result()["steps"]) == (6, 3)


@pytest.mark.parametrize("launch", [by_threads, by_processes])
def test_a_failure_of_the_run_that_follows_is_its_own(tmp_path, launch):
    fails = named(tmp_path, "two", "--optimizer sgd --lr 1e30 --loss mse")
    assert launch(named(tmp_path, "one"), Silent(), then=[fails]).status == "completed"
    assert (tmp_path / "two").is_dir()
    assert not RunFolder(tmp_path / "two").result.exists()


def test_a_worker_that_diverges_is_one_error_with_its_rank(tmp_path):
    flags = [
        *TINY.split(),
        "--optimizer",
        "sgd",
        "--lr",
        "1e30",
        "--loss",
        "mse",
        "--runs-dir",
        str(tmp_path),
    ]
    with pytest.raises(WorkerError, match=r"rank \d of 2: the (loss|norm) of") as caught:
        launch_run(read(None, flags), Silent())
    assert "a tenth" in caught.value.hint
    assert caught.value.exit_code == 2


def test_after_a_death_nothing_half_written_is_left_in_the_run_folder(tmp_path):
    listener = _TrainingListener(named(tmp_path, "run"), Silent(), None)
    folder = RunFolder(tmp_path)
    unfinished = [tmp_path / ".model.safetensors.4711.tmp", folder.checkpoints / "step-000007.tmp"]
    unfinished[1].mkdir(parents=True)
    unfinished[0].write_text("half of the weights")
    progress = {"step": 0, "epoch": 0, "consumed": 0}
    started = {"kind": "started", "folder": str(tmp_path), "total_steps": 6, "device": "cpu"}
    listener.heard(0, started | {"progress": progress})
    listener.remove_unfinished()
    assert [path.exists() for path in unfinished] == [False, False]


def test_the_place_of_a_lost_rank_is_named_where_the_model_is_divided():
    def role(flags, rank, code=-signal.SIGKILL):
        return list(_TrainingListener(read(None, flags.split()), Silent(), None).role_of(rank, code))

    assert role("--mesh data=2,pipeline=2", 3) == ["In the mesh, rank 3 is data 1, pipeline 1."]
    assert role("--strategy ddp --workers 4", 3) == []
    assert role("--strategy rpc --workers 3", 1) == []
    assert "unshare" in role("--strategy rpc --workers 3", 1, -signal.SIGABRT)[0]
