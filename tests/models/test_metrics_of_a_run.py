"""Metrics are tried on a few samples before a run begins: what cannot work is one clear sentence."""

import math

import pytest
import torch
from torch import nn

from shoal.errors import ConfigError
from shoal.models.metrics import measures_for

INPUTS = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 1])
MODEL = nn.Linear(3, 5)

OWN = """
import torch
from shoal.models.metrics import Metric

def text(outputs, labels): return "good"
def mean(outputs, labels): return outputs.mean()
def shorter(outputs, labels): return outputs[1:, 0]
def broken(outputs, labels): return outputs @ labels
def fine(outputs, labels): return outputs[:, 0]

class Two(Metric):
    def sums(self, outputs, labels): return torch.stack([outputs.sum(), labels.sum()])
    def value(self, sums): return sums[0]

class Means(Two):
    def sums(self, outputs, labels): return outputs.mean(0)

class Growing(Two):
    def sums(self, outputs, labels): return labels.clone()

class Scalar(Two):
    def sums(self, outputs, labels): return outputs.sum()

class Word(Two):
    def value(self, sums): return "good"

class Division(Two):
    def value(self, sums): return 1 / (sums[1] * 0).item()
"""


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    (tmp_path / "own_measures.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)


def test_loss_and_accuracy_are_measured_anyway():
    found = measures_for(("accuracy", "top2", "loss", "own_measures:Two"), MODEL, INPUTS, LABELS)
    assert [(each.label, each.width) for each in found] == [("top2", 2), ("Two", 2)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("top6", "metric top6: the model has only 5 outputs\n  Use top5 or less"),
        ("own_measures:text", "text: the function returned a value of type str, expected a tensor"),
        ("own_measures:mean", "mean: the function returned a single number for 4 samples"),
        ("own_measures:shorter", r"returned a tensor of shape \[3\] for 4 samples"),
        ("own_measures:broken", "metric own_measures:broken raised RuntimeError: "),
        (
            "own_measures:Means",
            "those of the single samples add up to .*\n  Return sums over the samples, not",
        ),
        ("own_measures:Growing", "returned 1 sums for 1 samples, and 4 before"),
        ("own_measures:Scalar", r"the sums of metric own_measures:Scalar are \[\], expected a vector"),
        ("own_measures:Word", "has a value of type str, expected a number"),
    ],
)
def test_what_cannot_be_summed_is_refused(name, message):
    with pytest.raises(ConfigError, match=message):
        measures_for((name,), MODEL, INPUTS, LABELS)


def test_a_few_samples_may_lack_what_a_metric_divides_by():
    (measure,) = measures_for(("own_measures:Division",), MODEL, INPUTS, LABELS)
    assert math.isnan(measure.value(torch.zeros(2)))


@pytest.mark.parametrize("name", ["accuracy", "top2", "perplexity"])
def test_numbers_have_no_classes(name):
    with pytest.raises(ConfigError, match=f"metric {name}:? .*classes, but they are torch.float32"):
        measures_for((name,), MODEL, INPUTS, torch.zeros(4, 5))


def test_the_model_keeps_its_mode():
    model = nn.Sequential(nn.Linear(3, 5), nn.Dropout())
    measures_for(("top2",), model, INPUTS, LABELS)
    assert model.training
    assert model[1].training
