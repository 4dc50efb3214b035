"""What all syncs do the same way: the state of an exchange is saved by each worker, and goes on after a resume."""

import json

import pytest
from safetensors import safe_open

from shoal.cli.main import main

EXCHANGE = """
import torch
from shoal.strategies.exchange.exchange import ParameterState

class Rounded:
    \"\"\"Sends multiples of 1/64; what it rounds off is added to the next step's gradients (error feedback).\"\"\"

    is_rule = True

    def __init__(self):
        self.residuals = ParameterState()

    def __call__(self, group, bucket):
        residual = self.residuals.flat(bucket)
        whole = bucket.flat + residual
        torch.trunc(whole * 64, out=bucket.flat).div_(64)
        torch.sub(whole, bucket.flat, out=residual)
        return group.all_reduce(bucket.flat)

    def pieces(self):
        return self.residuals.pieces()

    def load(self, pieces):
        self.residuals.load(pieces)
"""
FLAGS = "--data synthetic --data.samples 90 --data.shape 1,4,4 --data.classes 3 --model mlp --model.hidden 8 "
FLAGS += "--batch-size 30 --epochs 3 --optimizer sgd --lr 0.5 --threads 1 --device cpu --workers 2 --launcher threads "
FLAGS += "--exchange feedback_exchange:Rounded"
STEPS = 9


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "feedback_exchange.py").write_text(EXCHANGE)
    monkeypatch.chdir(tmp_path)


def train(capsys, *words):
    assert main(["train", "--json", *" ".join(words).split()]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize("strategy", ["naive", "ddp"])
def test_error_feedback_goes_on_after_a_resume(capsys, strategy):
    whole = train(capsys, FLAGS, f"--strategy {strategy} --name whole")
    train(capsys, FLAGS, f"--strategy {strategy} --name cut --steps 4")
    for rank in range(2):
        with safe_open(f"runs/cut/checkpoints/step-000004/rank{rank}.safetensors", framework="pt") as file:
            saved = [name for name in file.keys() if name.startswith("exchange.")]  # noqa: SIM118
            assert sorted(saved) == sorted(
                f"exchange.rank{rank}.fc{n}.{kind}" for n in (1, 2) for kind in ("bias", "weight")
            )
            assert any(file.get_tensor(name).any() for name in saved)
    own = "--exchange feedback_exchange:Rounded"
    resumed = train(capsys, f"--resume runs/cut {own} --steps {STEPS}")
    assert resumed["weights_sha256"] == whole["weights_sha256"]
