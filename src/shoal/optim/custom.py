"""A user's own optimizer, by its import path."""

from collections.abc import Iterable
from typing import Any

import torch

from shoal.config.custom import calling, check_options, load
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError


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
