"""`shoal.fit` on samples that are dictionaries, tuples or dataclasses, or have no labels: the weights of plain ones."""

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional

from shoal.api.fit import fit
from shoal.errors import ShoalError

draw = torch.Generator().manual_seed(0)
FIRST, SECOND = torch.randn(2, 48, 6, generator=draw).unbind()
LABELS = (FIRST[:, 0] > SECOND[:, 0]).long()
SETTINGS = {
    "epochs": 2,
    "batch_size": 20,
    "threads": 1,
    "device": "cpu",
    "progress": False,
    "train.test": False,
}


@dataclass
class Sample:
    first: torch.Tensor
    second: torch.Tensor
    labels: torch.Tensor


class Two(nn.Module):
    """Takes two inputs, and knows nothing of labels."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, first, second):
        return {"logits": self.layers(torch.cat([first, second], 1)), "cache": None}


class OfOne(Two):
    def forward(self, sample):
        return super().forward(sample.first, sample.second)


class Scores(Two):
    """Returns one tensor, and says in which order its layers run: the first of them takes the whole dictionary."""

    def forward(self, first, second):
        return super().forward(first, second)["logits"]

    def as_sequence(self):
        return [
            ("join", Join()),
            *((f"layers.{name}", layer) for name, layer in self.layers.named_children()),
        ]


class Join(nn.Module):
    def forward(self, both):
        return torch.cat([both["first"], both["second"]], 1)


def of_labels(outputs, labels):
    return functional.cross_entropy(outputs["logits"], labels)


def of_dictionary(outputs, batch):
    return of_labels(outputs, batch["labels"])


def of_scores(outputs, batch):
    return functional.cross_entropy(outputs, batch["labels"])


def of_dataclass(outputs, batch):
    return of_labels(outputs, batch.labels)


NAMED = {"first": FIRST, "second": SECOND, "labels": LABELS}
FORMS = {
    "tuple": (Two, ((FIRST, SECOND), LABELS), of_labels),
    "dictionary": (Two, NAMED, of_dictionary),
    "dictionary and label": (Two, ({"second": SECOND, "first": FIRST}, LABELS), of_labels),
    "scores": (Scores, NAMED, of_scores),
    "dataclass": (OfOne, Sample(**NAMED), of_dataclass),
}


def fitted(tmp_path, form, **settings):
    kind, data, loss = FORMS[form]
    torch.manual_seed(0)
    model = kind()
    fit(model, {"train": data, "test": data}, loss, "sgd", runs_dir=str(tmp_path), **SETTINGS, **settings)
    return [*model.parameters()]


@pytest.fixture(scope="module")
def one_machine(tmp_path_factory):
    """The weights after the same training on labelled rows."""
    torch.manual_seed(0)
    model = Two().layers
    rows = torch.cat([FIRST, SECOND], 1), LABELS
    folder = str(tmp_path_factory.mktemp("runs"))
    fit(model, {"train": rows, "test": rows}, functional.cross_entropy, "sgd", runs_dir=folder, **SETTINGS)
    return [*model.parameters()]


WAYS = [(form, {"workers": 2, "strategy": "ddp", "launcher": "threads"}) for form in FORMS]
WAYS += [("dictionary", {"workers": 3, "strategy": "zero", "strategy.stage": 3, "launcher": "threads"})]
WAYS += [("tuple", {}), ("scores", {"mesh": "pipeline=2", "launcher": "threads"})]
WAYS += [("scores", {"mesh": "data=2,tensor=2", "launcher": "threads"})]


@pytest.mark.parametrize(("form", "way"), WAYS, ids=str)
def test_the_weights_are_those_of_plain_samples(form, way, one_machine, tmp_path):
    found = fitted(tmp_path, form, **way)
    for ours, expected in zip(found, one_machine, strict=True):
        assert not torch.equal(ours, torch.zeros_like(ours))
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)


def test_samples_without_labels_are_their_own_targets(tmp_path):
    losses = []

    def reconstruction(outputs, inputs):
        losses.append(float((outputs - inputs).square().mean(1).mean().detach()))
        return (outputs - inputs).square().mean(1).mean()

    result = fit(
        nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 6)),
        FIRST,
        reconstruction,
        {"name": "adam", "lr": 0.02},
        runs_dir=str(tmp_path),
        **{**SETTINGS, "epochs": 20, "train.test": True},
    )
    assert result.test_accuracy is None
    assert result.test_loss < losses[0] / 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"strategy": "dp", "workers": 2}, "strategy dp does not support nested samples"),
        ({"engine": "tape"}, "engine tape"),
        ({"loss": "cross_entropy"}, "cross_entropy compares outputs with one tensor|takes one tensor"),
        ({"model": "mlp"}, "model mlp takes one tensor"),
        ({"metrics": ["top1"]}, "labels must be classes in one tensor"),
        ({"partition": "label", "workers": 2}, "requires labels"),
    ],
    ids=lambda value: str(value),
)
def test_what_takes_one_tensor_says_so(settings, words, tmp_path):
    settings = {"model": Two(), "loss": of_dictionary, **settings}
    model, loss = settings.pop("model"), settings.pop("loss")
    with pytest.raises(ShoalError, match=words):
        fit(
            model,
            copy.copy(NAMED),
            loss,
            "sgd",
            runs_dir=str(tmp_path),
            launcher="threads",
            **SETTINGS,
            **settings,
        )
