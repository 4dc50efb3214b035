"""A loss that returns (sum, count): the mean over all that counts is one machine's for uneven counts, in float64.

A padded language model: samples have different numbers of tokens, and some have none at all.
"""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from shoal.api.fit import fit
from shoal.config.sections.model import TransformerConfig
from shoal.data.division import Global
from shoal.models import build

LENGTH, WORDS, SAMPLES, PADDING = 6, 9, 22, -100
LR, MOMENTUM, CLIP = 0.1, 0.9, 0.5
BATCH, EPOCHS = 8, 2  # the last batch of an epoch has 6 samples

draw = torch.Generator().manual_seed(3)
TOKENS = torch.randint(WORDS, (SAMPLES, LENGTH), generator=draw)
LENGTHS = torch.randint(LENGTH + 1, (SAMPLES,), generator=draw)
LENGTHS[:2] = torch.tensor([0, LENGTH])
LABELS = torch.where(torch.arange(LENGTH) < LENGTHS[:, None], TOKENS.roll(-1, 1), PADDING)
WEIGHTS = torch.linspace(0.5, 2.0, WORDS, dtype=torch.float64)


def language_model():
    config = TransformerConfig(layers=2, width=8, heads=4)
    return build(config, (LENGTH,), WORDS, seed=0).double()


def scores(outputs, labels):
    return outputs.flatten(0, 1), labels.flatten()


def per_token(outputs, labels):
    total = functional.cross_entropy(*scores(outputs, labels), ignore_index=PADDING, reduction="sum")
    return total, (labels != PADDING).sum()


def per_weight(outputs, labels):
    """torch's weighted mean divides by the weights of the labels."""
    total = functional.cross_entropy(*scores(outputs, labels), WEIGHTS, ignore_index=PADDING, reduction="sum")
    return total, WEIGHTS[labels[labels != PADDING]].sum().item()


def in_a_dictionary(outputs, batch):
    return per_token(outputs, batch["labels"])


class Named(nn.Module):
    """Takes tokens by name, as Hugging Face's models do, and is cut before its first layer by nothing."""

    def __init__(self):
        super().__init__()
        self.model = language_model()

    def forward(self, input_ids, use_cache=False):
        return self.model(input_ids)


SETTINGS = {"epochs": EPOCHS, "batch_size": BATCH, "threads": 1, "device": "cpu", "clip_norm": CLIP}
SETTINGS |= {"launcher": "threads", "progress": False}
SGD = {"name": "sgd", "lr": LR, "momentum": MOMENTUM}


def trained(folder, loss=per_token, model=None, data=(TOKENS, LABELS), **settings):
    """The result and the weights of a run."""
    model = model or language_model()
    held = {"train": data, "test": data}
    result = fit(model, held, loss, SGD, runs_dir=str(folder), **{**SETTINGS, **settings})
    return result, {name: param.detach() for name, param in model.named_parameters()}


def by_torch(weight=None):
    """The same training as a loop of torch's own; the loss of all samples at its end, and the weights."""
    model = language_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    order = Global(SAMPLES, 0, 1)
    mean = nn.CrossEntropyLoss(weight, ignore_index=PADDING)
    for epoch in range(EPOCHS):
        for start in range(0, SAMPLES, BATCH):
            batch = order.step(epoch, start, min(BATCH, SAMPLES - start), 0)
            optimizer.zero_grad()
            mean(*scores(model(TOKENS[batch]), LABELS[batch])).backward()
            norm = torch.cat([param.grad.flatten() for param in model.parameters()]).norm()
            for param in model.parameters():  # torch's clip_grad_norm_ adds 1e-6 to the norm
                param.grad.mul_((CLIP / norm).clamp(max=1))
            optimizer.step()
    loss = mean(*scores(model(TOKENS), LABELS)).item()
    return loss, {name: param.detach() for name, param in model.named_parameters()}


@pytest.fixture(scope="module")
def one_machine():
    return by_torch()


def assert_same(found, expected, tolerance=1e-12):
    loss, weights = expected
    result, ours = found
    assert math.isclose(result.test_loss, loss, rel_tol=1e-11)
    assert ours.keys() == weights.keys()
    for name, weight in weights.items():
        assert (ours[name] - weight).abs().max() <= tolerance, name


WAYS = {
    "single": {},
    "accumulated": {"micro_batch": 3},
    "ddp": {"strategy": "ddp", "workers": 3},
    "ddp, accumulated": {"strategy": "ddp", "workers": 2, "micro_batch": 3},
    "naive": {"strategy": "naive", "workers": 3},
    "dp": {"strategy": "dp", "workers": 2},
    "onecopy": {"strategy": "onecopy", "workers": 2},
    "zero 1": {"strategy": "zero", "workers": 3},
    "zero 2": {"strategy": "zero", "workers": 2, "strategy.stage": 2, "micro_batch": 3},
    "zero 3": {"strategy": "zero", "workers": 3, "strategy.stage": 3},
    "pipeline": {"mesh": "pipeline=3"},
    "pipeline, recomputed": {"mesh": "pipeline=2", "pipeline.recompute": True},
    "tensor": {"mesh": "tensor=2"},
    "all axes": {"mesh": "data=2,pipeline=2,tensor=2"},
    "robust": {"strategy": "ddp", "workers": 2, "exchange": "stages:0=all_reduce"},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_strategy_is_torchs_mean_over_all_tokens(way, one_machine, tmp_path):
    assert_same(trained(tmp_path, **WAYS[way]), one_machine)


def test_class_weights(tmp_path):
    assert_same(trained(tmp_path, per_weight, strategy="ddp", workers=3), by_torch(WEIGHTS))


def test_labels_in_a_dictionary(one_machine, tmp_path):
    data = {"input_ids": TOKENS, "labels": LABELS}
    result, weights = trained(tmp_path, in_a_dictionary, Named(), data, strategy="zero", workers=2)
    assert_same((result, {name.removeprefix("model."): each for name, each in weights.items()}), one_machine)


def test_a_mean_per_worker_would_be_something_else(one_machine, tmp_path):
    """The counts matter: the same run with the sum over the samples alone ends elsewhere."""
    _, weights = trained(tmp_path, lambda outputs, labels: per_token(outputs, labels)[0] / len(labels))
    distance = max((weights[name] - each).abs().max() for name, each in one_machine[1].items())
    assert distance > 1e-3
