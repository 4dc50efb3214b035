"""`--precision fp16`: every strategy leaves out the steps, and has the loss scale, that torch's own scaler has."""

import pytest
import torch
from safetensors.torch import load_file
from small_runs import train
from torch.nn.functional import cross_entropy

from shoal import models
from shoal.config.read import read
from shoal.data.load import load
from shoal.errors import DivergedError
from shoal.strategies import loss_scale
from shoal.training import worker

NET = """
from torch import nn
from torch.nn import functional as F

class Small(nn.Module):
    def forward(self, inputs):
        return inputs / 100

def net():
    # Gradients of single outputs overflow, and no sums over samples, which depend on how a batch is divided.
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), Small(), nn.Linear(8, 4, bias=False))

def large(outputs, labels):
    return 400 * F.cross_entropy(outputs, labels, reduction="sum")

def in_millions(outputs, labels):
    return 1e7 * F.cross_entropy(outputs, labels, reduction="sum")

def endless(outputs, labels):
    return 1e30 * F.cross_entropy(outputs, labels, reduction="sum")
"""
FLAGS = (
    "--model fp16_net:net --loss fp16_net:large --data synthetic --data.samples 20 --data.shape 1,4,4 "
    "--data.classes 4 --optimizer gd --lr 0.1 --epochs 12 --device cpu --launcher threads --precision fp16"
)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "fp16_net.py").write_text(NET)
    (tmp_path / "plan.toml").write_text('1 = "column"\n4 = "row"\n')
    monkeypatch.chdir(tmp_path)
    # Within twelve steps the factor both halves and doubles.
    monkeypatch.setattr(loss_scale, "GROWS_AFTER", 5)


def weights_of(result):
    return load_file(f"{result['run']}/model.safetensors")


@pytest.fixture
def expected():
    """Final weights, factor and steps left out of the same training with torch's scaler."""
    config = read(None, FLAGS.split())
    data = load(config.data)
    model = models.build(config.model, data.input_shape, data.outputs, config.seed)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", growth_interval=5)
    batch = data.batch(data.train, torch.arange(len(data.train)))
    left_out = 0
    for _ in range(12):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            outputs = model(batch.inputs)
            loss = 400 * cross_entropy(outputs, batch.labels, reduction="sum") / batch.num_samples
        scaler.scale(loss).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        left_out += scaler.get_scale() < before
    return model.state_dict(), scaler.get_scale(), left_out


@pytest.mark.parametrize(
    "strategy",
    [
        "single",
        "single --memory.checkpoint 1",
        "naive --workers 3",
        "ddp --workers 2",
        "ddp --workers 2 --micro-batch 4",
        "onecopy --workers 2",
        "zero --workers 2",
        "zero --workers 3 --strategy.stage 3",
        "pipeline --workers 2",
        "tensor --workers 2 --tensor.plan plan.toml",
    ],
)
def test_every_strategy_scales_as_torch_does(capsys, expected, strategy):
    weights, factor, left_out = expected
    result = train(capsys, FLAGS, "--strategy", strategy)
    assert (result["loss_scale"], result["left_out"]) == (factor, left_out)
    assert left_out >= 2
    found = weights_of(result)
    assert all((found[name] - weights[name]).abs().max() < 2e-3 for name in weights)


def test_a_resumed_run_goes_on_with_the_factor(capsys):
    whole = train(capsys, FLAGS, "--strategy ddp --workers 2")
    train(capsys, FLAGS, "--strategy ddp --workers 2 --epochs 4 --name half")
    result = train(capsys, "--resume runs/half --epochs 12 --trust-code")
    for key in ("loss_scale", "left_out", "weights_sha256"):
        assert result[key] == whole[key]


def test_a_loss_in_the_millions_trains_with_a_factor_below_1(capsys):
    flags = FLAGS.replace("large", "in_millions").replace("--lr 0.1 --epochs 12", "--lr 1e-9 --epochs 40")
    result = train(capsys, flags)
    assert result["loss_scale"] < 1
    assert result["left_out"] < 30


def test_an_overflow_that_no_factor_prevents_ends_the_run():
    flags = FLAGS.replace("large", "endless").replace("--epochs 12", "--epochs 50")
    with pytest.raises(DivergedError, match="even at a loss scale of 6e-08.*\n  Use --precision bf16"):
        worker.run(read(None, flags.split()))
