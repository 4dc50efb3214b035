"""From a configured optimizer to a built one."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from shoal.config.schema import AdamConfig, AdamWConfig, Custom, GdConfig, OptimizerConfig, SgdConfig
from shoal.optim.adam import Adam, AdamW
from shoal.optim.custom import build_custom
from shoal.optim.sgd import SGD


def _gd(config: GdConfig, params: Iterable[Any]) -> SGD:
    # Gradient descent has no rule of its own: the batch, which is the whole training set, makes it what it is.
    return SGD(params, config.lr, fast=config.fast)


def _sgd(config: SgdConfig, params: Iterable[Any]) -> SGD:
    return SGD(params, config.lr, config.momentum, config.nesterov, config.weight_decay, config.fast)


def _adam(config: AdamConfig, params: Iterable[Any]) -> Adam:
    betas = (config.beta1, config.beta2)
    return Adam(params, config.lr, betas, config.eps, config.weight_decay, config.fast)


def _adamw(config: AdamWConfig, params: Iterable[Any]) -> AdamW:
    betas = (config.beta1, config.beta2)
    return AdamW(params, config.lr, betas, config.eps, config.weight_decay, config.fast)


BUILDERS: Mapping[type, Callable[[Any, Iterable[Any]], torch.optim.Optimizer]] = {
    GdConfig: _gd,
    SgdConfig: _sgd,
    AdamConfig: _adam,
    AdamWConfig: _adamw,
    Custom: build_custom,
}


def build(config: OptimizerConfig, params: Iterable[Any]) -> torch.optim.Optimizer:
    """The optimizer a configuration asks for, over these parameters (or torch's parameter groups).

    >>> weight = torch.zeros(3, requires_grad=True)
    >>> build(AdamConfig(lr=0.01), [weight]).param_groups[0]["lr"]
    0.01
    """
    return BUILDERS[type(config)](config, params)
