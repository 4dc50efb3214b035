"""The best epoch and early stopping: the same under every strategy, and across a stop and a resume."""

import json
import os
import re
from pathlib import Path

import pytest
from small_runs import train

from shoal.cli.main import main
from shoal.events.file import read_events
from shoal.events.folder import RunFolder

FLAGS = "--data best_net:data --model best_net:Net --batch-size 16 --epochs 12 --optimizer sgd --lr 0.1 "
FLAGS += "--momentum 0.9 --threads 1 --device cpu --launcher threads --validation 0.3 --seed 3 "
"""Most labels are random: first the loss on the validation set falls, then it rises."""
NET = """
import torch
from torch import nn

def data():
    draw = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(80, 16, generator=draw), torch.randint(3, (80,), generator=draw)
    labels = torch.where(torch.rand(80, generator=draw) < 0.4, (inputs[:, 0] > 0).long(), labels)
    return (inputs[:60], labels[:60]), (inputs[60:], labels[60:])

class Double(nn.Module):
    def forward(self, inputs):
        return inputs.flatten(1).double()

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(Double(), nn.Linear(16, 8).double(), nn.Tanh(), nn.Linear(8, 3).double())

def doubt(outputs, labels):
    return 1 - outputs.softmax(1).amax(1)
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "best_net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)


def losses(name):
    """The validation loss of every epoch of a run."""
    events = read_events(RunFolder(Path("runs") / name).events())
    return [event["loss"] for event in events if event["event"] == "validation"]


def checkpoints(name):
    return sorted(int(path[5:]) for path in os.listdir(Path("runs") / name / "checkpoints"))


def test_the_best_checkpoint_stays_beside_the_last_one(capsys):
    result = train(capsys, FLAGS, "--name it --checkpoint.keep 1")
    found = losses("it")
    best = result["best"]
    assert (best["metric"], best["value"]) == ("loss", min(found))
    assert 1 < best["epoch"] == found.index(min(found)) + 1 < 12, "neither the first nor the last"
    assert checkpoints("it") == [best["step"], result["steps"]]
    for name in ("best", str(best["step"])):
        flags = f"runs/it --checkpoint {name} --split validation --trust-code --json"
        assert main(["evaluate", *flags.split()]) == 0
        assert json.loads(capsys.readouterr().out)["loss"] == pytest.approx(min(found), rel=1e-12)
    # A run can start from it, too.
    started = train(capsys, FLAGS, "--start runs/it/checkpoints/best --epochs 1 --lr 1e-12")
    assert started["validation_loss"] == pytest.approx(min(found), rel=1e-6)


WAYS = [
    "--strategy ddp --workers 2",
    "--strategy zero --strategy.stage 3 --workers 2",
    "--strategy pipeline --workers 2",
    "--strategy server --workers 2",
]


def test_every_strategy_stops_after_one_machines_epoch(capsys):
    stop = "--stop.patience 2"
    single = train(capsys, FLAGS, stop, "--name single")
    found = losses("single")
    assert single["status"] == "completed"
    assert single["stopped_early"]
    assert single["epochs"] == len(found) == found.index(min(found)) + 1 + 2 < 12
    for way in WAYS:
        other = train(capsys, FLAGS, stop, way)
        assert other["best"] == {**single["best"], "value": pytest.approx(single["best"]["value"], rel=1e-9)}
        for key in ("status", "stopped_early", "epochs", "steps"):
            assert other[key] == single[key], way
        assert other["test_loss"] == pytest.approx(single["test_loss"], rel=1e-9)


@pytest.mark.parametrize("every", ["", "--checkpoint-every 3"])
def test_a_resumed_run_goes_on_counting(capsys, every):
    whole = train(capsys, FLAGS, "--stop.patience 2 --name whole", every)
    cut = whole["steps"] - 2  # in the middle of the last epoch
    train(capsys, FLAGS, f"--stop.patience 2 --name parts --steps {cut}", every)
    resumed = train(capsys, "--resume runs/parts --trust-code --steps 100")
    assert {**resumed, "run": "", "run_id": "", "seconds": 0, "samples_per_s": 0} == {
        **whole,
        "run": "",
        "run_id": "",
        "seconds": 0,
        "samples_per_s": 0,
    }
    # More patience makes the run go on.
    longer = train(capsys, "--resume runs/parts --trust-code --stop.patience 12")
    assert longer["epochs"] == 12
    assert not longer["stopped_early"]


def test_a_metric_of_ones_own_decides(capsys):
    own = "--metrics best_net:doubt --stop.metric doubt"
    lower = train(capsys, FLAGS, own, "--stop.goal lower --name lower")
    higher = train(capsys, FLAGS, own, "--name higher")
    assert lower["best"]["metric"] == "doubt"
    assert lower["best"]["value"] < higher["best"]["value"]


@pytest.mark.usefixtures("without_figures")
def test_a_change_that_is_too_small_is_no_better_epoch(capsys):
    result = train(capsys, FLAGS, "--stop.patience 3 --stop.least_change 1000 --name it")
    assert (result["best"]["epoch"], result["epochs"]) == (1, 4)
    assert main(["report", "runs/it", "--out", "page"]) == 0
    shown = capsys.readouterr().out
    assert "1 of 4, validation loss" in shown
    assert re.search(r"stopped early +after epoch 4\n", shown)
    assert "| 1 (best) |" in Path("page/report.md").read_text()


def test_the_terminal_says_why_it_stopped(capsys):
    assert main(["train", *FLAGS.split(), "--stop.patience", "1", "--stop.least_change", "1000"]) == 0
    shown = capsys.readouterr().out
    assert "  best epoch     1: validation loss " in shown
    assert "  stopped early  after epoch 2: no better loss for 1 epoch\n" in shown


def test_there_is_no_best_without_a_validation_set(capsys):
    train(capsys, FLAGS, "--validation 0 --epochs 1 --name it")
    assert main(["evaluate", "runs/it", "--checkpoint", "best", "--trust-code"]) != 0
    assert "no epoch was validated" in capsys.readouterr().err
    assert main(["evaluate", "runs/it", "--checkpoint", "77", "--trust-code"]) != 0
    assert "has no checkpoint '77'" in capsys.readouterr().err
    assert main(["evaluate", "best_net.py", "--checkpoint", "best"]) == 2
    assert "is for a run folder" in capsys.readouterr().err


def test_data_of_ones_own_must_have_a_validation_set_to_stop_early(capsys):
    flags = FLAGS.replace("--validation 0.3 ", "")
    assert main(["train", *flags.split(), "--stop.patience", "1"]) == 2
    assert "needs a validation set, and best_net:data has none" in capsys.readouterr().err
    result = train(capsys, flags, "--stop.patience 1 --validation 0.2 --stop.least_change 99")
    assert result["epochs"] == 2
