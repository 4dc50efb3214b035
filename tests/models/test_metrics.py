"""Metrics against their definitions, written another way; the sums of parts add up to those of the whole."""

import math

import pytest
import torch
from torch.nn import functional

from shoal.errors import ConfigError
from shoal.models.metrics import MeanOf, Metric, Perplexity, TopKAccuracy, build_metric

OUTPUTS = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(40) % 6


def test_top_k_counts_labels_whose_rank_is_below_k():
    ranks = (OUTPUTS.gather(1, LABELS[:, None]) < OUTPUTS).sum(1)
    for k in (1, 3, 6):
        metric = TopKAccuracy(k)
        assert metric.value(metric.sums(OUTPUTS, LABELS)) == pytest.approx((ranks < k).float().mean().item())


@pytest.mark.parametrize("shape", [(40, 6), (8, 5, 6)], ids=["classes", "text"])
def test_perplexity_is_exp_of_the_mean_cross_entropy_of_a_label(shape):
    outputs, labels = OUTPUTS.view(shape), LABELS.view(shape[:-1])
    metric = Perplexity()
    expected = math.exp(functional.cross_entropy(OUTPUTS, LABELS).item())
    assert metric.value(metric.sums(outputs, labels)) == pytest.approx(expected)


def test_labels_below_0_do_not_count():
    labels = LABELS.clone()
    labels[::3] = -100
    kept = labels >= 0
    top, perplexity = TopKAccuracy(2), Perplexity()
    of_column = MeanOf(lambda outputs, labels: outputs[..., 0])
    for metric in (top, perplexity, of_column):
        expected = metric.value(metric.sums(OUTPUTS[kept], labels[kept]))
        for shape in ((40,), (8, 5)):
            found = metric.value(metric.sums(OUTPUTS.view(*shape, 6), labels.view(shape)))
            assert found == pytest.approx(expected), shape
    loss = functional.cross_entropy(OUTPUTS, labels, ignore_index=-100)
    assert perplexity.value(perplexity.sums(OUTPUTS, labels)) == pytest.approx(loss.exp().item())


@pytest.mark.parametrize(
    "metric", [TopKAccuracy(2), Perplexity(), MeanOf(lambda outputs, labels: outputs[:, 0] > 0)]
)
def test_sums_of_parts_add_up(metric):
    parts = [metric.sums(*part) for part in zip(OUTPUTS.split(7), LABELS.split(7), strict=True)]
    whole = metric.sums(OUTPUTS, LABELS)
    assert metric.value(sum(parts)) == pytest.approx(metric.value(whole), rel=1e-12)


def test_a_perplexity_too_large_for_a_float_is_infinite():
    assert Perplexity().value(torch.tensor([1e6, 1.0], dtype=torch.float64)) == math.inf


OWN = """
import torch
from shoal.models.metrics import Metric

def right(outputs, labels):
    return outputs.argmax(1) == labels

class Recall(Metric):
    def sums(self, outputs, labels):
        found = outputs.argmax(1) == 1
        return torch.stack([(found & (labels == 1)).sum(), (labels == 1).sum()])

    def value(self, sums):
        return sums[0] / sums[1]

class Plain:
    pass

class Needs(Recall):
    def __init__(self, threshold):
        pass

def recall():
    return Recall()
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_metric.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("own")
def test_functions_and_classes_of_ones_own():
    right = build_metric("own_metric:right")
    expected = (OUTPUTS.argmax(1) == LABELS).float().mean().item()
    assert right.value(right.sums(OUTPUTS, LABELS)) == pytest.approx(expected)
    for name in ("Recall", "recall"):
        assert isinstance(build_metric(f"own_metric:{name}"), Metric)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_metric:rihgt", "did you mean 'right'"),
        ("own_metric:Plain", "returned a value of type Plain, expected a shoal.Metric"),
        ("own_metric:Needs", "metric own_metric:Needs cannot be constructed: .*threshold"),
        ("no_such:metric", "there is no module 'no_such'"),
    ],
)
def test_what_is_no_metric_is_refused(name, message):
    with pytest.raises(ConfigError, match=message):
        build_metric(name)
