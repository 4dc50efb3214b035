"""Build the optimizer of a configuration."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from shoal.config.kinds import options_of
from shoal.config.sections.optimizer import OptimizerConfig
from shoal.config.sections.values import Custom
from shoal.optim.adam import Adam, AdamW
from shoal.optim.custom import build_custom
from shoal.optim.sgd import SGD

OPTIMIZERS: Mapping[str, type[SGD | Adam]] = {"gd": SGD, "sgd": SGD, "adam": Adam, "adamw": AdamW}
"""Gradient descent is SGD whose batch is the whole training set."""


def build(config: OptimizerConfig, params: Iterable[Any]) -> torch.optim.Optimizer:
    """The optimizer of a configuration, over these parameters (or torch's parameter groups).

    >>> from shoal.config.sections.optimizer import AdamConfig
    >>> weight = torch.zeros(3, requires_grad=True)
    >>> build(AdamConfig(lr=0.01), [weight]).param_groups[0]["lr"]
    0.01
    """
    if isinstance(config, Custom):
        return build_custom(config, params)
    options = options_of(config)
    if "beta1" in options:
        options["betas"] = (options.pop("beta1"), options.pop("beta2"))
    return OPTIMIZERS[config.name](params, **options)
