"""Every configured optimizer becomes the one it names, with the options it names."""

import pytest
import torch
from torch import Tensor

from shoal.config.sections.optimizer import AdamConfig, AdamWConfig, GdConfig, SgdConfig
from shoal.config.sections.values import Custom
from shoal.optim import SGD, Adam, AdamW, build


def params() -> list[Tensor]:
    return [torch.zeros(2, requires_grad=True)]


def test_gd_is_sgd_without_momentum() -> None:
    optimizer = build(GdConfig(lr=0.25), params())
    assert type(optimizer) is SGD
    group = optimizer.param_groups[0]
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.25, 0.0, 0.0)


def test_sgd_gets_its_options() -> None:
    optimizer = build(SgdConfig(lr=0.3, momentum=0.8, nesterov=True, weight_decay=0.01, fast=False), params())
    assert isinstance(optimizer, SGD)
    group = optimizer.param_groups[0]
    assert (group["lr"], group["momentum"], group["nesterov"], group["weight_decay"]) == (
        0.3,
        0.8,
        True,
        0.01,
    )
    assert not optimizer.fast


@pytest.mark.parametrize(("config", "kind"), [(AdamConfig, Adam), (AdamWConfig, AdamW)])
def test_adam_gets_its_options(config: type, kind: type) -> None:
    optimizer = build(config(lr=0.3, beta1=0.5, beta2=0.7, eps=0.1, weight_decay=0.2), params())
    assert type(optimizer) is kind
    group = optimizer.param_groups[0]
    assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (0.3, (0.5, 0.7), 0.1, 0.2)
    assert optimizer.fast


def test_a_users_own_is_called_with_its_options() -> None:
    optimizer = build(Custom("torch.optim:Adagrad", (("lr", 0.5), ("eps", 0.1))), params())
    assert isinstance(optimizer, torch.optim.Adagrad)
    assert (optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["eps"]) == (0.5, 0.1)
