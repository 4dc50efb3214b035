"""Work of one worker's own may take longer than a member may be silent: the others wait for it."""

import time

import pytest
import torch

from shoal.comm.threads.group import run_threads
from shoal.config.read import read
from shoal.strategies.layout.whole import Whole
from shoal.training import build, checkpoint, worker
from shoal.training.observer import Silent
from shoal.training.stop import StopRequest

FLAGS = "--data synthetic --data.samples 60 --data.shape 1,4,4 --data.classes 3 --model mlp --model.hidden 8 "
FLAGS += "--batch-size 20 --epochs 1 --device cpu --strategy naive --workers 2 --launcher threads"


def slowly(function):
    """The same, but its first caller takes twice as long as a member may be silent."""
    called = []

    def slow(*arguments, **options):
        called.append(1)
        if len(called) == 1:
            time.sleep(1.0)
        return function(*arguments, **options)

    return slow


@pytest.mark.parametrize(("where", "name"), [(checkpoint, "save"), (build, "load"), (Whole, "evaluate")])
def test_the_others_wait_for_one_that_is_busy(tmp_path, monkeypatch, where, name):
    monkeypatch.setattr(where, name, slowly(getattr(where, name)))
    config = read(None, [*FLAGS.split(), "--runs-dir", str(tmp_path), "--name", "run"])

    def work(group):
        return worker.work(config, torch.device("cpu"), StopRequest(), Silent(), group)

    results = run_threads(2, work, limit_s=0.5)
    assert [result.status for result in results] == ["completed", "completed"]
