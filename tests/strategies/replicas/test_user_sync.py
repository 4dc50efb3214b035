"""Runs under a strategy of the user's own: from the command line, from a program, resumed, and refused."""

import json

import pytest
import torch
from torch import nn

from shoal.api.fit import fit
from shoal.api.train import train as train_by_keywords
from shoal.cli.main import main
from shoal.errors import ConfigError
from shoal.strategies.replicas.user_sync import ReplicaSync

FLAGS = "--data synthetic --data.samples 60 --data.shape 1,4,4 --data.classes 3 --model mlp --model.hidden 8 "
FLAGS += "--batch-size 16 --epochs 2 --optimizer sgd --lr 0.1 --threads 1 --device cpu --launcher threads "
OWN = """
import shoal

class Summed(shoal.ReplicaSync):
    def __init__(self, parts, times: int = 1):
        super().__init__(parts)
        self._times = times

    def combine(self, gradients, part):
        super().combine(gradients, part)
        for gradient in gradients.values():
            gradient *= self._times

class Alone(shoal.ReplicaSync):
    replicas_differ = True

    def combine(self, gradients, part):
        pass

def made(parts):
    return Summed(parts)

def number(parts):
    return 3

class Fails(shoal.ReplicaSync):
    def combine(self, gradients, part):
        raise RuntimeError("no way")
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "own_sync.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)


def train(capsys, *words):
    assert main(["train", "--json", *" ".join(words).split()]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_sum_is_one_machines_result(capsys):
    single = train(capsys, FLAGS)
    for name in ("Summed", "made"):
        found = train(capsys, FLAGS, f"--strategy own_sync:{name} --workers 2")
        assert found["strategy"] == f"own_sync:{name}"
        for key in ("test_loss", "final_loss"):
            assert found[key] == pytest.approx(single[key], rel=1e-4)


def test_options_are_arguments(capsys):
    doubled = train(capsys, FLAGS, "--strategy own_sync:Summed --strategy.times 2 --workers 2")
    expected = train(capsys, FLAGS.replace("--lr 0.1", "--lr 0.2"))
    assert doubled["test_loss"] == pytest.approx(expected["test_loss"], rel=1e-4)


def test_a_resumed_run_of_replicas_that_differ_has_the_same_bits(capsys):
    way = "--strategy own_sync:Alone --workers 2"
    whole = train(capsys, FLAGS, way, "--name whole")
    train(capsys, FLAGS, way, "--name parts --steps 3")
    resumed = train(capsys, "--resume runs/parts --steps 8 --trust-code")
    assert resumed["weights_sha256"] == whole["weights_sha256"]
    # Other workers than those that saved their weights continue with the average; also if no step is left.
    more = train(capsys, "--resume runs/whole --trust-code --workers 4")
    assert more["weights_sha256"] == whole["weights_sha256"]
    # What it saved is one model: any strategy continues with it.
    train(capsys, FLAGS, way, "--name other --steps 3")
    other = train(capsys, "--resume runs/other --steps 8 --strategy single --workers 1")
    assert other["status"] == "completed"


def Adam(params):  # noqa: N802 (the name of a strategy below)
    return torch.optim.Adam(params)


class Summed(ReplicaSync):
    """Importable by this module's name."""


def test_a_program_gives_the_class_itself(tmp_path):
    class Local(ReplicaSync):
        pass

    inputs = torch.randn(48, 6, generator=torch.Generator().manual_seed(1))
    data = ((inputs, (inputs[:, 0] > 0).long()), (inputs, (inputs[:, 0] > 0).long()))
    small = {"epochs": 1, "batch_size": 16, "device": "cpu", "progress": False}
    nets = [nn.Linear(6, 2) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    fit(nets[0], data, **small)
    result = fit(nets[1], data, strategy=Local, workers=2, **small)
    assert result.strategy == "shoal_fit:Local"
    assert (nets[0].weight - nets[1].weight).abs().max() < 1e-5
    Local.__name__ = "Adam"  # as the optimizer's
    assert (
        fit(nets[1], data, make_optimizer=Adam, strategy=Local, workers=2, **small).strategy
        == "shoal_fit:strategy"
    )

    settings = {"data": {"name": "synthetic", "samples": 60}, "model": "linear", "launcher": "threads"}
    by_name = train_by_keywords(strategy=Summed, workers=2, steps=2, progress=False, **settings)
    assert by_name.strategy.endswith("test_user_sync:Summed")
    Local.__name__ = "Local"
    with pytest.raises(ConfigError, match="strategy .*Local is defined inside a function"):
        train_by_keywords(strategy=Local, workers=2, steps=2, progress=False, **settings)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--strategy own_sync:Sumed", "did you mean 'Summed'"),
        ("--strategy own_sync:number", "strategy own_sync:number returned a value of type int"),
        ("--strategy own_sync:Summed --strategy.tims 2", "cannot be called with tims=2"),
        ("--strategy own_sync:Summed --mesh data=1,pipeline=2", "divides no model"),
        ("--strategy ddpp", "unknown strategy 'ddpp': did you mean 'ddp'"),
    ],
)
def test_what_is_refused(capsys, flags, message):
    workers = "" if "--mesh" in flags else "--workers 2"
    assert main(["train", *f"{FLAGS} {workers} {flags}".split()]) == 2
    assert message in capsys.readouterr().err


def test_an_error_in_a_step_names_the_line(capsys):
    assert main(["train", *f"{FLAGS} --workers 2 --strategy own_sync:Fails".split()]) == 1
    assert "no way" in capsys.readouterr().err


def test_a_file_runs_no_strategy_without_consent(capsys, tmp_path):
    (tmp_path / "it.toml").write_text('[strategy]\nname = "own_sync:Summed"\n')
    assert main(["train", "it.toml", *FLAGS.split()]) == 2
    assert "files run no code without consent" in capsys.readouterr().err
