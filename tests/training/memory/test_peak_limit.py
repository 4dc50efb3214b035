"""A run above its budget ends with a sentence; one below records its peak."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from shoal.cli.main import main
from shoal.config.read import read
from shoal.events.folder import RunFolder
from shoal.strategies.pieces.freed_memory import return_freed_memory
from shoal.training.memory.peak import MemoryLimit
from shoal.training.progress import Progress
from shoal.training.worker import run

TINY = "--model mlp --model.hidden 512,512 --data synthetic --data.samples 64 --batch-size 16 --steps 5 --threads 1"


def test_the_peak_of_all_steps_is_recorded(tmp_path):
    config = read(None, f"{TINY} --memory.budget 500MB --runs-dir {tmp_path} --device cpu".split())
    folder = RunFolder(Path(run(config).run))
    events = [json.loads(line) for line in folder.events(0).read_text().splitlines()]
    (event,) = (each for each in events if each.get("event") == "memory")
    assert event["steps"] == 5
    assert 12 * 400_000 < event["peak_bytes"] < event["budget_bytes"] == 500e6


def test_a_run_above_its_budget_ends(tmp_path):
    config = read(None, f"{TINY} --memory.budget 1MB --runs-dir {tmp_path} --device cpu".split())
    return_freed_memory()  # of earlier tests, which this run would use again
    with pytest.raises(Exception, match="the first 3 steps took .* MB of memory, more than --memory.budget"):
        run(config)


class Meter:
    """Stands in for the kernel's numbers: reads the highest of the sizes since it was restarted."""

    def __init__(self, device):
        self.sizes = [0]

    def restart(self):
        self.sizes = self.sizes[-1:]

    def read(self):
        return max(self.sizes)


@pytest.fixture
def limit(monkeypatch):
    monkeypatch.setattr("shoal.training.memory.peak.PeakMemory", Meter)
    config = read(None, f"{TINY} --memory.budget 10MB --device cpu".split())
    limit = MemoryLimit(config, torch.device("cpu"))
    limit.events = []
    assert limit.begin(SimpleNamespace(nbytes=0), limit.events.append)
    return limit


def step(limit, mb):
    limit.before_step(Progress(), 1)
    limit._meter.sizes += [int(mb * 1e6), 1]


def test_memory_that_grows_later_is_recorded_and_warned_about(limit):
    for mb in (20, 8, 8, 9, 11):  # the first step is not counted
        step(limit, mb)
    with pytest.warns(UserWarning, match=r"memory grew to 11.0 MB, above --memory.budget \(10.0 MB\)"):
        limit.end()
    assert limit.events == [
        {"event": "memory", "steps": 5, "budget_bytes": 10_000_000, "peak_bytes": 11_000_000}
    ]


def test_memory_between_epochs_is_not_counted(limit):
    for mb in (8, 8, 9):
        step(limit, mb)
    limit.after_steps()
    limit._meter.sizes += [30_000_000, 1]  # a validation
    for mb in (7, 7):
        step(limit, mb)
    limit.after_steps()
    limit.end()
    assert limit.events[0]["peak_bytes"] == 9_000_000


def test_a_run_of_one_step_records_nothing(limit):
    step(limit, 20)
    limit.end()
    assert limit.events == []


def test_a_worker_that_was_started_by_hand_cannot_choose(capsys):
    words = f"{TINY} --memory.budget 500MB --strategy ddp --workers 2 --rank 0 --world-size 2 --master 127.0.0.1:29999"
    assert main(["train", *words.split()]) == 2
    assert "--memory.budget needs workers that shoal starts itself" in capsys.readouterr().err
