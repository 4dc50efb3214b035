"""From gradients to an update: rates, and updates that a number on the device leaves out."""

import math

import pytest
import torch
from strategy_cases import OPTIMIZERS, copy_of, network
from torch.optim.optimizer import register_optimizer_step_post_hook

from shoal.config.schema import AdamConfig, SgdConfig
from shoal.errors import ConfigError
from shoal.parallel.piece import by_name

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
