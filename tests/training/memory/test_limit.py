"""A run above its budget ends with a sentence; one below records its peak."""

import json
from pathlib import Path

import pytest

from shoal.cli.main import main
from shoal.config.read import read
from shoal.events.folder import RunFolder
from shoal.training.worker import run

TINY = "--model mlp --model.hidden 512,512 --data synthetic --data.samples 64 --batch-size 16 --steps 5 --threads 1"


def test_the_peak_of_the_first_steps_is_recorded(tmp_path):
    config = read(None, f"{TINY} --memory.budget 500MB --runs-dir {tmp_path} --device cpu".split())
    folder = RunFolder(Path(run(config).run))
    events = [json.loads(line) for line in folder.events(0).read_text().splitlines()]
    (event,) = (each for each in events if each.get("event") == "memory")
    assert event["step"] == 3
    assert 12 * 400_000 < event["peak_bytes"] < event["budget_bytes"] == 500e6


def test_a_run_above_its_budget_ends(tmp_path):
    config = read(None, f"{TINY} --memory.budget 1MB --runs-dir {tmp_path} --device cpu".split())
    with pytest.raises(Exception, match="the first 3 steps took .* MB of memory, more than --memory.budget"):
        run(config)


def test_a_worker_that_was_started_by_hand_cannot_choose(capsys):
    words = f"{TINY} --memory.budget 500MB --strategy ddp --workers 2 --rank 0 --world-size 2 --master 127.0.0.1:29999"
    assert main(["train", *words.split()]) == 2
    assert "--memory.budget needs workers that shoal starts itself" in capsys.readouterr().err
