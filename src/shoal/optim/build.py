"""Build the optimizer of a configuration: one of ours, or a user's own by its import path."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from shoal.config.choices import options_of
from shoal.config.custom import calling, check_options, load
from shoal.config.sections.optimizer import OptimizerConfig
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError
from shoal.optim.adam import Adam, AdamW
from shoal.optim.sgd import SGD


def build_custom(config: Custom, params: Iterable[Any]) -> torch.optim.Optimizer:
    """Call `package.module:function` with the parameters and the configured options.

    >>> custom = Custom("torch.optim:RMSprop", (("lr", 0.1),))
    >>> type(build_custom(custom, [torch.zeros(3, requires_grad=True)])).__name__
    'RMSprop'
    """
    with calling("optimizer", config):
        function = load("optimizer", config)
        check_options("optimizer", config, function, given=1)
        try:
            optimizer = function(params, **dict(config.options))
        except (TypeError, ValueError) as error:
            given = ", ".join(f"{name}={value!r}" for name, value in config.options) or "no options"
            raise ConfigError(f"optimizer {config.name} cannot be built with {given}: {error}") from error
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ConfigError(
            f"optimizer {config.name} returned a value of type {type(optimizer).__name__}, "
            "expected a torch.optim.Optimizer",
            "Return it: return torch.optim.SGD(params, lr=0.1).",
        )
    return optimizer


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
