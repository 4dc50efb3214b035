"""What every strategy shares: sums of parts are the whole, and clipping bounds the norm."""

import itertools

import pytest
import torch
from torch import nn

from shoal.config.sections.model import CrossEntropyConfig
from shoal.data.dataset import Batch
from shoal.events.spans import HostClock, SpanRecorder
from shoal.strategies.gradient_engine import accumulate, build_engine, evaluate_batch
from shoal.strategies.strategy import Share


def make(num_samples=12):
    draw = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    with torch.no_grad():
        for param in model.parameters():
            param.copy_(torch.randn(param.shape, generator=draw, dtype=torch.float64))
    inputs = torch.randn(num_samples, 5, generator=draw, dtype=torch.float64)
    labels = torch.randint(3, (num_samples,), generator=draw)
    return model, inputs, labels


def loss(outputs, labels):
    return nn.functional.cross_entropy(outputs, labels, reduction="sum")


def gradients_of(model):
    return build_engine("torch", model, CrossEntropyConfig(), SpanRecorder(HostClock())).gradients


def gradient_of(model, inputs, labels, cuts):
    for param in model.parameters():
        param.grad = None
    bounds = [0, *cuts, len(inputs)]
    parts = [Batch(inputs[a:b], labels[a:b], b - a) for a, b in itertools.pairwise(bounds) if b > a]
    value = accumulate(gradients_of(model), Share(parts, len(inputs), len(inputs)), torch.zeros(()))
    return value, [param.grad.clone() for param in model.parameters()]


@pytest.mark.parametrize("cuts", [[], [6], [1, 2, 3], [11], [0, 5, 5]])
def test_parts_of_any_size_give_the_gradient_of_the_mean(cuts):
    model, inputs, labels = make()
    value, grads = gradient_of(model, inputs, labels, cuts)
    expected = nn.functional.cross_entropy(model(inputs), labels)
    wanted = torch.autograd.grad(expected, list(model.parameters()))
    assert value.item() == pytest.approx(expected.item(), rel=1e-12)
    for grad, want in zip(grads, wanted, strict=True):
        assert (grad - want).abs().max() <= 1e-12 * want.abs().max()


def test_a_worker_without_samples_adds_nothing():
    model, *_ = make()
    gradients = gradients_of(model)
    assert accumulate(gradients, Share([], 12, 0), torch.zeros(())).item() == 0
    assert all(param.grad is None for param in model.parameters())


def test_evaluation_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))
    model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    batch = Batch(torch.randn(8, 5, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3, 8)
    sums = evaluate_batch(model, loss, batch)
    assert sums.samples == sums.predictions == 8
    assert 0 <= sums.correct.item() <= 8
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
