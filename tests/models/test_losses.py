import typing

import pytest
import torch
from torch.nn import functional as F

from shoal.config.sections.model import CrossEntropyConfig, LossConfig, MaeConfig, MseConfig
from shoal.config.sections.values import Custom
from shoal.models import build_loss
from shoal.models.losses import LOSSES


@pytest.fixture
def random():
    return torch.Generator().manual_seed(0)


def test_every_choice_of_the_schema_can_be_built():
    assert {choice.name for choice in typing.get_args(LossConfig) if choice is not Custom} == LOSSES.keys()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_is_the_sum_over_samples(random, smoothing):
    outputs, labels = torch.randn(5, 4, generator=random), torch.tensor([0, 3, 1, 1, 2])
    ours = build_loss(CrossEntropyConfig(smoothing=smoothing))(outputs, labels)
    assert ours.shape == ()
    torch.testing.assert_close(ours, 5 * F.cross_entropy(outputs, labels, label_smoothing=smoothing))


@pytest.mark.parametrize(("config", "torchs"), [(MseConfig(), F.mse_loss), (MaeConfig(), F.l1_loss)])
def test_distances_to_labels_are_distances_to_one_hot_rows(random, config, torchs):
    outputs, labels = torch.randn(5, 4, generator=random), torch.tensor([0, 3, 1, 1, 2])
    torch.testing.assert_close(
        build_loss(config)(outputs, labels), torchs(outputs, F.one_hot(labels, 4).float(), reduction="sum")
    )


@pytest.mark.parametrize(("config", "torchs"), [(MseConfig(), F.mse_loss), (MaeConfig(), F.l1_loss)])
@pytest.mark.parametrize("label_shape", [(6,), (6, 1)])
def test_numbers_may_come_with_or_without_their_last_dimension(random, config, torchs, label_shape):
    """[6, 1] against [6] would broadcast to [6, 6] in torch, with a warning at most."""
    outputs, labels = torch.randn(6, 1, generator=random), torch.randn(6, generator=random)
    ours = build_loss(config)(outputs, labels.view(label_shape))
    torch.testing.assert_close(ours, torchs(outputs[:, 0], labels, reduction="sum"))


@pytest.mark.parametrize(
    "config", [CrossEntropyConfig(), MseConfig(), MaeConfig()], ids=lambda config: config.name
)
def test_text_is_averaged_over_positions_and_summed_over_samples(random, config):
    loss = build_loss(config)
    outputs = torch.randn(3, 8, 16, generator=random)
    labels = torch.randint(0, 16, (3, 8), generator=random)
    expected = sum(loss(outputs[i], labels[i]) / 8 for i in range(3))
    torch.testing.assert_close(loss(outputs, labels), expected)


@pytest.mark.parametrize(
    "config", [CrossEntropyConfig(), MseConfig(), MaeConfig()], ids=lambda config: config.name
)
@pytest.mark.parametrize("positions", [(), (8,)])
def test_cutting_a_batch_anywhere_changes_nothing(random, config, positions):
    loss = build_loss(config)
    outputs = torch.randn(7, *positions, 5, generator=random, dtype=torch.float64)
    labels = torch.randint(0, 5, (7, *positions), generator=random)
    for cut in range(8):
        parts = loss(outputs[:cut], labels[:cut]) + loss(outputs[cut:], labels[cut:])
        torch.testing.assert_close(parts, loss(outputs, labels))


@pytest.mark.parametrize("config", [CrossEntropyConfig(smoothing=0.1), MseConfig(), MaeConfig()])
def test_an_empty_share_has_loss_and_gradient_zero(config):
    weight = torch.ones(4, 3, requires_grad=True)
    value = build_loss(config)(torch.empty(0, 4) @ weight, torch.empty(0, dtype=torch.int64))
    value.backward()
    assert value == 0
    assert (weight.grad == 0).all()


def test_labels_may_be_bytes(random):
    outputs, labels = torch.randn(5, 4, generator=random), torch.tensor([0, 3, 1, 1, 2])
    for config in (CrossEntropyConfig(), MseConfig()):
        loss = build_loss(config)
        assert torch.equal(loss(outputs, labels.to(torch.uint8)), loss(outputs, labels))


def test_a_loss_of_torch_by_its_path(random):
    outputs, labels = torch.randn(5, 1, generator=random), torch.randn(5, 1, generator=random)
    config = Custom(name="torch.nn.functional:huber_loss", options=(("reduction", "sum"), ("delta", 0.5)))
    assert torch.equal(
        build_loss(config)(outputs, labels), F.huber_loss(outputs, labels, reduction="sum", delta=0.5)
    )
