"""Whole runs with less memory for activations: the weights have the bits of a run that keeps everything."""

import pytest
from small_runs import train

from shoal.cli.main import main

pytestmark = pytest.mark.filterwarnings("ignore:the file of activations is in memory")

TINY = (
    "--model transformer --model.layers 2 --model.width 16 --data synthetic --data.task text --data.samples 16 "
    "--data.shape 8 --data.validation 0 --batch-size 8 --micro-batch 4 --steps 3 --threads 1 --optimizer.fast false"
)
DROPOUT = """
from torch import nn

def net():
    blocks = [nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.3)) for _ in range(3)]
    return nn.Sequential(nn.Flatten(), *blocks, nn.Linear(64, 10))
"""
NAMED_P = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.p, self.dropout = nn.Linear(64, 64), nn.Parameter(torch.ones(64)), nn.Dropout(0.0)

    def forward(self, value):
        return self.dropout(self.fc(value) * self.p)

def net():
    return nn.Sequential(nn.Flatten(), Block(), Block(), nn.Linear(64, 10))
"""


@pytest.mark.parametrize(
    "strategy",
    [
        "single",
        "ddp --workers 2",
        "zero --strategy.stage 1 --workers 2",
        "zero --strategy.stage 3 --workers 2",
        "onecopy --workers 2",
        "local --strategy.every 2 --workers 2",
        "pipeline --workers 2",
        "tensor --workers 2",
    ],
)
def test_the_weights_have_the_same_bits(capsys, tmp_path, monkeypatch, strategy):
    monkeypatch.chdir(tmp_path)
    run = f"{TINY} --strategy {strategy} --launcher threads"
    expected = train(capsys, run)["weights_sha256"]
    alone, both = (
        ["--memory.offload file", "--memory.checkpoint 1"],
        "--memory.checkpoint 2 --memory.offload file",
    )
    techniques = alone[:1] if strategy.startswith("pipeline") else [both]
    for flags in [*alone, both] if strategy in ("single", "ddp --workers 2") else techniques:
        assert train(capsys, run, flags)["weights_sha256"] == expected, flags


def test_dropout_draws_the_same_masks(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(DROPOUT)
    monkeypatch.syspath_prepend(tmp_path)
    run = "--model own:net --data synthetic --data.samples 32 --data.shape 64 --batch-size 8 --steps 4 --threads 1"
    expected = train(capsys, run)["weights_sha256"]
    for flags in ("--memory.checkpoint 1", "--memory.checkpoint 1 --memory.offload file"):
        assert train(capsys, run, flags)["weights_sha256"] == expected
    threads = f"{run} --strategy ddp --workers 2 --launcher threads --memory.checkpoint 1"
    assert main(["train", *threads.split()]) == 2
    assert "does not support dropout with thread workers" in capsys.readouterr().err


def test_a_tensor_called_p_is_no_dropout(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_p.py").write_text(NAMED_P)
    monkeypatch.syspath_prepend(tmp_path)
    run = (
        "--model own_p:net --data synthetic --data.samples 32 --data.shape 64 --batch-size 8 --steps 2 --threads 1 "
        "--strategy ddp --workers 2 --launcher threads"
    )
    expected = train(capsys, run)["weights_sha256"]
    assert train(capsys, run, "--memory.checkpoint 1")["weights_sha256"] == expected
