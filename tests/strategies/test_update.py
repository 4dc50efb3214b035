"""From gradients to an update: rates, and updates that a number on the device leaves out."""

import math

import pytest
import torch
from strategy_cases import OPTIMIZERS, copy_of, network
from torch.optim.optimizer import register_optimizer_step_post_hook

from shoal.config.sections.optimizer import AdamConfig, SgdConfig
from shoal.errors import ConfigError
from shoal.strategies.pieces.piece import by_name
from shoal.strategies.update import Update, is_elementwise

FAST = {**OPTIMIZERS, "plain sgd": SgdConfig(lr=0.1), "adam": AdamConfig(lr=0.01, fast=True)}


def prepared(optimizer, gradient=1.0):
    copy = copy_of(network(), optimizer)
    for param in copy.params.values():
        param.grad = torch.full_like(param, gradient)
    return copy


def state_after(copy, unless):
    copy.update(0.1, unless=unless)
    return {
        name: tensor.clone() for name, tensor in by_name(copy.layout.pieces() + copy.update.pieces()).items()
    }


@pytest.mark.parametrize("optimizer", FAST)
def test_a_masked_update_leaves_weights_and_moments_as_they_are(optimizer):
    copy = prepared(FAST[optimizer])
    assert copy.update.can_be_masked
    before = state_after(copy, unless=None)
    for param in copy.params.values():
        param.grad.fill_(math.nan)
    after = state_after(copy, unless=torch.tensor(1.0))
    for name, tensor in before.items():
        if not name.endswith(".step"):
            assert torch.equal(after[name], tensor), name


@pytest.mark.parametrize("optimizer", FAST)
def test_an_update_that_is_not_masked_is_any_other(optimizer):
    torch.manual_seed(0)
    plain = prepared(FAST[optimizer])
    torch.manual_seed(0)
    masked = prepared(FAST[optimizer])
    expected, found = state_after(plain, unless=None), state_after(masked, unless=torch.tensor(0.0))
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_the_readable_step_cannot_be_masked():
    copy = prepared(SgdConfig(lr=0.1, fast=False))
    assert not copy.update.can_be_masked
    with pytest.raises(ConfigError, match="found_inf is not supported by the readable step"):
        copy.update(0.1, unless=torch.tensor(1.0))


def test_hooks_of_the_optimizer_are_called():
    copy, calls = prepared(FAST["adam"]), []
    handle = register_optimizer_step_post_hook(lambda optimizer, args, kwargs: calls.append(optimizer))
    try:
        copy.update(0.1)
    finally:
        handle.remove()
    copy.update(0.1)
    assert len(calls) == 1


ALONE = {
    torch.optim.SGD: {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    torch.optim.Adam: {"amsgrad": True},
    torch.optim.AdamW: {},
    torch.optim.Adagrad: {},
    torch.optim.RMSprop: {"centered": True, "momentum": 0.9},
    torch.optim.NAdam: {},
    torch.optim.RAdam: {},
    torch.optim.Adadelta: {},
    torch.optim.Adamax: {},
    torch.optim.ASGD: {"lr": 0.1, "lambd": 0.1, "t0": 1},
    torch.optim.Rprop: {},
}


@pytest.mark.parametrize("kind", ALONE, ids=lambda kind: kind.__name__)
def test_an_elementwise_optimizer_of_torch_updates_slices_as_it_updates_the_whole(kind):
    draw = torch.Generator().manual_seed(0)
    whole = torch.randn(9, generator=draw, dtype=torch.float64)
    parts = [part.clone() for part in whole.split([4, 5])]
    optimizers = [kind([whole], **ALONE[kind]), kind(parts, **ALONE[kind])]
    assert all(map(is_elementwise, optimizers))
    for _ in range(5):
        whole.grad = torch.randn(9, generator=draw, dtype=torch.float64)
        for part, grad in zip(parts, whole.grad.split([4, 5]), strict=True):
            part.grad = grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert torch.equal(whole, torch.cat(parts))


def test_groups_keep_the_ratios_of_their_rates_and_a_rate_of_zero():
    copy = copy_of(network(), SgdConfig(lr=0.1))
    first, *rest = copy.params.values()

    def make_optimizer(params):
        del params
        return torch.optim.SGD(
            [{"params": [first], "lr": 0.0}, {"params": rest[:1], "lr": 0.4}, {"params": rest[1:]}], 0.1
        )

    before = [param.detach().clone() for param in copy.params.values()]
    for param in copy.params.values():
        param.grad = torch.ones_like(param)
    update = Update(copy.layout, make_optimizer)
    assert update.base_lr == 0.4
    update(0.2)
    moved = [(old - new).abs().max().item() for old, new in zip(before, copy.params.values(), strict=True)]
    assert moved == pytest.approx([0.0, 0.2, *[0.05] * (len(moved) - 2)])
