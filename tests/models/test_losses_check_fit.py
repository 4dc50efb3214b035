import sys
import types

import pytest
import torch
from torch import nn
from torch.nn import functional

from shoal.config.sections.model import CrossEntropyConfig, MaeConfig, MseConfig
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError
from shoal.models import check_fit
from shoal.models.resnet18 import resnet18
from shoal.models.transformer import transformer

TWO = torch.zeros(2, 4)


def refusal(model, loss, inputs, labels):
    with pytest.raises(ConfigError) as caught:
        check_fit(model, loss, inputs, labels)
    assert "\n" not in caught.value.message
    return str(caught.value)


@pytest.mark.parametrize("loss", [CrossEntropyConfig(), MseConfig(), MaeConfig()])
def test_labels_with_an_output_each_fit(loss):
    check_fit(nn.Linear(4, 10), loss, TWO, torch.arange(10))


@pytest.mark.parametrize("labels", [torch.zeros(9), torch.zeros(9, 1)])
def test_numbers_fit_one_output(labels):
    check_fit(nn.Linear(4, 1), MseConfig(), TWO, labels)


def test_text_fits():
    check_fit(
        transformer((6,), layers=1, width=8, heads=2),
        CrossEntropyConfig(),
        torch.zeros(2, 6, dtype=torch.uint8),
        torch.zeros(9, 6, dtype=torch.int64),
    )


@pytest.mark.parametrize("loss", [CrossEntropyConfig(), MseConfig()])
def test_a_label_beyond_the_outputs_anywhere_in_the_data(loss):
    words = refusal(nn.Linear(4, 5), loss, TWO, torch.tensor([0, 1, 2, 9, 4]))
    assert "[2, 5]" in words
    assert "0 to 4" in words
    assert "0 to 9" in words
    assert "10 outputs" in words


def test_a_negative_label():
    assert "-1 to 3" in refusal(nn.Linear(4, 5), CrossEntropyConfig(), TWO, torch.tensor([3, -1]))


def test_cross_entropy_of_numbers_points_to_mse():
    words = refusal(nn.Linear(4, 1), CrossEntropyConfig(), TWO, torch.zeros(2))
    assert "float32" in words
    assert "--loss mse" in words


def test_mse_of_the_wrong_width():
    words = refusal(nn.Linear(4, 10), MseConfig(), TWO, torch.zeros(2, 1))
    assert "[2, 10]" in words
    assert "[2, 1]" in words


def test_a_label_per_position_needs_scores_per_position():
    words = refusal(nn.Linear(4, 10), CrossEntropyConfig(), TWO, torch.zeros(2, 4, dtype=torch.int64))
    assert "[2, 10]" in words
    assert "[2, 4]" in words


def test_inputs_the_model_cannot_take():
    words = refusal(nn.Linear(5, 10), CrossEntropyConfig(), TWO, torch.tensor([0, 1]))
    assert "[2, 4] (float32)" in words
    assert "int64" in refusal(nn.Linear(4, 10), CrossEntropyConfig(), TWO.long(), torch.tensor([0, 1]))


class Pair(nn.Module):
    def forward(self, x):
        return x, x


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(dim=0)


def test_outputs_that_are_no_batch():
    labels = torch.tensor([0, 1])
    assert "tuple" in refusal(Pair(), CrossEntropyConfig(), TWO, labels)
    assert "output is [4] for a batch of 2" in refusal(Mean(), CrossEntropyConfig(), TWO, labels)


def test_the_model_is_left_as_it_was():
    net = resnet18(width=4)
    net.norm1.eval()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    modes = [module.training for module in net.modules()]
    check_fit(net, CrossEntropyConfig(), torch.ones(2, 3, 32, 32), torch.tensor([0, 1]))
    refusal(net, CrossEntropyConfig(), torch.ones(2, 3, 32, 32), torch.tensor([0, 10]))
    refusal(net, CrossEntropyConfig(), torch.ones(2, 5, 32, 32), torch.tensor([0, 1]))
    assert [module.training for module in net.modules()] == modes
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    assert all(param.grad is None for param in net.parameters())


def huber(reduction):
    return Custom(name="torch.nn.functional:huber_loss", options=(("reduction", reduction),))


def test_a_first_loss_that_is_not_finite_is_no_matter_of_sums(monkeypatch):
    module = types.ModuleType("endless")
    module.infinite = lambda outputs, labels: (outputs + labels).sum() + torch.inf
    module.no_number = lambda outputs, labels: ((outputs - labels).sum() / 0 * 0, len(outputs))
    monkeypatch.setitem(sys.modules, "endless", module)
    for name, found in {"infinite": "inf, before", "no_number": "nan with a count of 3, before"}.items():
        words = refusal(nn.Linear(4, 1), Custom(name=f"endless:{name}"), torch.ones(3, 4), torch.ones(3, 1))
        assert f"of the first 3 samples is {found} any training" in words
        assert "sum" not in words


def test_a_loss_of_ones_own_must_be_the_sum():
    inputs, labels = torch.ones(3, 4), torch.tensor([[1.0], [2.0], [4.0]])
    check_fit(nn.Linear(4, 1), huber("sum"), inputs, labels)
    assert "the sum over the samples" in refusal(nn.Linear(4, 1), huber("mean"), inputs, labels)
    assert "[3, 1]" in refusal(nn.Linear(4, 1), huber("none"), inputs, labels)


def test_a_loss_without_a_gradient_is_refused(own_losses):
    own_losses.cut_off = lambda outputs, labels: (outputs.detach() - labels).sum()
    own_losses.of_classes = lambda outputs, labels: (outputs.argmax(1) != labels[:, 0]).float().sum()
    own_losses.through_weights = lambda outputs, labels: outputs.detach().sum() + 0 * layer.weight.sum()
    layer, labels = nn.Linear(4, 1), torch.ones(3, 1)
    for name in ("cut_off", "of_classes"):
        assert "gradient" in refusal(layer, Custom(name=f"own_losses:{name}"), torch.ones(3, 4), labels)
    check_fit(layer, Custom(name="own_losses:through_weights"), torch.ones(3, 4), labels)


def test_a_loss_of_ones_own_that_cannot_take_the_labels():
    config = Custom(name="torch.nn.functional:nll_loss", options=(("reduction", "sum"),))
    words = refusal(nn.Linear(4, 3), config, TWO, torch.zeros(2, 3))
    assert "nll_loss cannot take outputs [2, 3] (float32)" in words


def one_output(outputs, labels):
    """Two classes, one output: a program's usual binary classification."""
    return functional.binary_cross_entropy_with_logits(
        outputs.flatten(), labels.float().flatten(), reduction="sum"
    )


def several(outputs, labels):
    """Several classes for one sample."""
    return functional.binary_cross_entropy_with_logits(outputs, labels.float(), reduction="sum")


def distance(outputs, labels):
    return functional.mse_loss(outputs, labels, reduction="sum")


@pytest.fixture(autouse=True)
def own_losses(monkeypatch):
    """These functions as the user's own, under a name that settings can have."""
    made = types.ModuleType("own_losses")
    for function in (one_output, several, distance):
        setattr(made, function.__name__, function)
    monkeypatch.setitem(sys.modules, "own_losses", made)
    return made


@pytest.mark.parametrize(
    ("loss", "outputs", "labels"),
    [("one_output", 1, torch.tensor([0, 1, 1])), ("several", 4, torch.tensor([[0, 1, 1, 0]] * 3))],
)
def test_whole_numbers_that_are_not_one_class_for_each_score_are_refused(loss, outputs, labels):
    """The accuracy would count nonsense; as floating-point numbers they are targets, and have no accuracy."""
    config, model = Custom(name=f"own_losses:{loss}"), nn.Linear(4, outputs)
    words = refusal(model, config, torch.ones(3, 4), labels)
    assert (
        f"the model's output is [3, {outputs}] and the labels are whole numbers {list(labels.shape)} up to 1"
        in words
    )
    assert "labels.float()" in words
    check_fit(model, config, torch.ones(3, 4), labels.float())


def test_a_loss_that_compares_each_output_with_every_label_is_named():
    words = refusal(
        nn.Linear(4, 1), Custom(name="own_losses:distance"), torch.ones(3, 4), torch.tensor([1.0, 2.0, 4.0])
    )
    assert "outputs [3, 1] and labels [3]" in words
    assert "labels.unsqueeze(1)" in words


class WithLoss(nn.Module):
    """Computes its loss itself, as models of Hugging Face do."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 5)

    def forward(self, ids, labels):
        scores = self.table(ids)
        return {"loss": functional.cross_entropy(scores.flatten(0, 1), labels.flatten()), "scores": scores}


def test_the_models_own_mean_over_the_tokens_that_count_is_refused(own_losses):
    own_losses.of_model = lambda outputs, batch: outputs["loss"] * len(batch["labels"])
    own_losses.counted = lambda outputs, batch: (
        outputs["loss"] * (batch["labels"] >= 0).sum(),
        (batch["labels"] >= 0).sum(),
    )
    ids = torch.arange(20).view(4, 5) % 5
    labels = torch.where(torch.arange(5) < torch.tensor([[1], [2], [3], [5]]), ids, -100)
    batch = {"ids": ids, "labels": labels}
    assert "single samples" in refusal(WithLoss(), Custom(name="own_losses:of_model"), batch, None)
    assert check_fit(WithLoss(), Custom(name="own_losses:counted"), batch, None)
    whole = {"ids": ids, "labels": ids}
    assert not check_fit(WithLoss(), Custom(name="own_losses:of_model"), whole, None)


@pytest.mark.parametrize("count", [{"accuracy": 1}, "many", torch.ones(2), -1])
def test_a_count_that_is_no_number_is_refused(own_losses, count):
    own_losses.counted = lambda outputs, labels: (outputs.sum(), count)
    assert "count" in refusal(nn.Linear(4, 5), Custom(name="own_losses:counted"), TWO, torch.tensor([0, 1]))
