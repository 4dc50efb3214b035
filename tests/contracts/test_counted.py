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
from shoal.errors import ShoalError
from shoal.models import build

LENGTH, WORDS, SAMPLES, PADDING = 6, 9, 22, -100
LR, MOMENTUM = 0.1, 0.9
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


SETTINGS = {"epochs": EPOCHS, "batch_size": BATCH, "threads": 1, "device": "cpu"}
SETTINGS |= {"launcher": "threads", "progress": False}
SGD = {"name": "sgd", "lr": LR, "momentum": MOMENTUM}


def trained(folder, loss=per_token, model=None, data=(TOKENS, LABELS), **settings):
    """The result and the weights of a run."""
    model = model or language_model()
    held = {"train": data, "test": data}
    result = fit(model, held, loss, SGD, runs_dir=str(folder), **{**SETTINGS, **settings})
    return result, {name: param.detach() for name, param in model.named_parameters()}


def by_torch(weight=None, samples=SAMPLES, clip_norm=math.inf):
    """The same training as a loop of torch's own; the loss of all samples at its end, and the weights."""
    model = language_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    order = Global(SAMPLES, 0, 1)
    mean = nn.CrossEntropyLoss(weight, ignore_index=PADDING)
    for epoch in range(EPOCHS):
        for start in range(0, samples, BATCH):
            batch = order.step(epoch, start, min(BATCH, samples - start), 0)
            optimizer.zero_grad()
            mean(*scores(model(TOKENS[batch]), LABELS[batch])).backward()
            norm = torch.cat([param.grad.flatten() for param in model.parameters()]).norm()
            for param in model.parameters():  # torch's clip_grad_norm_ adds 1e-6 to the norm
                param.grad.mul_((clip_norm / norm).clamp(max=1))
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


def test_gradients_are_divided_before_they_are_clipped(tmp_path):
    found = trained(tmp_path, strategy="zero", workers=2, clip_norm=1.0)
    assert_same(found, by_torch(clip_norm=1.0))


def test_without_the_last_batch_of_an_epoch(tmp_path):
    found = trained(tmp_path, strategy="ddp", workers=3, **{"train.drop_last": True})
    assert found[0].steps == EPOCHS * (SAMPLES // BATCH)
    assert_same(found, by_torch(samples=SAMPLES // BATCH * BATCH))


def test_labels_in_a_dictionary(one_machine, tmp_path):
    data = {"input_ids": TOKENS, "labels": LABELS}
    result, weights = trained(tmp_path, in_a_dictionary, Named(), data, strategy="zero", workers=2)
    assert_same((result, {name.removeprefix("model."): each for name, each in weights.items()}), one_machine)


def test_a_mean_per_worker_would_be_something_else(one_machine, tmp_path):
    """The counts matter: the same run with the mean over the samples ends elsewhere."""
    _, weights = trained(tmp_path, lambda outputs, labels: per_token(outputs, labels)[0] / len(labels))
    distance = max((weights[name] - each).abs().max() for name, each in one_machine[1].items())
    assert distance > 1e-3


PADDED = TOKENS, torch.full_like(LABELS, PADDING)


@pytest.mark.parametrize("way", ["single", "ddp", "pipeline"])
def test_a_count_of_zero_is_one_sentence_with_rank_and_samples(way, tmp_path):
    with pytest.raises(
        ShoalError, match=r"step 0: the count of the loss is 0 .* rank \d has samples \d"
    ) as refused:
        trained(tmp_path, data=PADDED, **WAYS[way])
    assert "\n" not in str(refused.value.args[0])


def test_a_count_of_zero_can_leave_the_step_out(tmp_path):
    settings = {"train.on_nonfinite": "skip", "train.test": False, "strategy": "zero", "workers": 2}
    with pytest.warns(UserWarning, match="the count of the loss is 0 .*: the step is left out"):
        _, weights = trained(tmp_path, data=PADDED, **settings)
    before = dict(language_model().named_parameters())
    assert all(torch.equal(weight, before[name]) for name, weight in weights.items())


def test_data_without_anything_that_counts_cannot_be_evaluated(tmp_path):
    with pytest.raises(ShoalError, match="the count of the loss is 0 for all 22 samples of the evaluation"):
        trained(tmp_path, data=PADDED, **{"train.on_nonfinite": "skip"})


@pytest.mark.parametrize(
    ("loss", "sentence"),
    [
        (lambda outputs, labels: outputs.mean((1, 2)), r"returned \[4\], expected a tensor with one number"),
        (lambda outputs, labels: (outputs.sum(), -1), "returned a count of -1, expected one number"),
        (
            lambda outputs, labels: (outputs.sum(), labels),
            r"returned a count of \[4, 6\], expected one number",
        ),
        (lambda outputs, labels: (outputs.mean(), 1), "with a count of 1, but the single samples add up to"),
    ],
    ids=["vector", "negative count", "vector of counts", "mean"],
)
def test_what_a_loss_must_not_return(loss, sentence, tmp_path):
    with pytest.raises(ShoalError, match=sentence):
        trained(tmp_path, loss)


@pytest.mark.parametrize(
    "way",
    [
        {"strategy": "local", "workers": 2},
        {"strategy": "server", "workers": 2},
        {"strategy": "naive", "workers": 2, "strategy.aggregate": "parameters"},
        {"mesh": "pipeline=2", "pipeline.schedule": "async"},
    ],
    ids=str,
)
def test_a_strategy_that_cannot_divide_by_counts_says_so(way, tmp_path):
    with pytest.raises(ShoalError, match="a loss with a count"):
        trained(tmp_path, **way)


def contrastive(outputs, labels):
    """Each sample's scores are most like its own."""
    rows = functional.normalize(outputs.flatten(1), dim=1)
    return functional.cross_entropy(rows @ rows.T, torch.arange(len(rows)))


def test_a_loss_that_couples_samples_needs_a_flag(tmp_path):
    with pytest.raises(
        ShoalError, match=r"the mean of the losses of the single samples(.|\n)*--train.coupled true"
    ):
        trained(tmp_path, contrastive)
    with pytest.warns(UserWarning, match="results depend on the number of workers"):
        _, alone = trained(tmp_path / "1", contrastive, **{"train.coupled": True})
    with pytest.warns(UserWarning, match="results depend on the number of workers"):
        _, two = trained(tmp_path / "2", contrastive, strategy="ddp", workers=2, **{"train.coupled": True})
    assert max((alone[name] - two[name]).abs().max() for name in alone) > 1e-6, "as the warning says"
