"""A user's own optimizer, named by its import path."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import torch

from shoal.config.schema import Custom
from shoal.errors import ConfigError, unknown


def build_custom(config: Custom, params: Iterable[Any]) -> torch.optim.Optimizer:
    """Call `package.module:function` with the parameters and the options given beside the name.

    >>> custom = Custom("torch.optim:RMSprop", (("lr", 0.1),))
    >>> type(build_custom(custom, [torch.zeros(3, requires_grad=True)])).__name__
    'RMSprop'
    """
    function = _find(config.name)
    options = dict(config.options)
    try:
        optimizer = function(params, **options)
    except (TypeError, ValueError) as error:
        given = ", ".join(f"{name}={value!r}" for name, value in options.items()) or "no options"
        raise ConfigError(f"optimizer {config.name} cannot be built with {given}: {error}") from error
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ConfigError(
            f"optimizer {config.name} gave a {type(optimizer).__name__}, and not a torch.optim.Optimizer"
        )
    return optimizer


def _find(path: str) -> Any:
    module_name, _, function_path = path.partition(":")
    try:
        found: Any = import_module(module_name)
    except Exception as error:  # any exception at all: it is the user's code that runs here
        raise ConfigError(
            f"optimizer {path}: importing {module_name} failed with {type(error).__name__}: {error}",
            f"`python -c 'import {module_name}'` shows where.",
        ) from error
    for name in function_path.split("."):
        if not hasattr(found, name):
            known = [known for known in dir(found) if not known.startswith("_")]
            raise ConfigError(f"optimizer {path}: {unknown(f'name in {module_name}', name, known)}")
        found = getattr(found, name)
    if not callable(found):
        raise ConfigError(
            f"optimizer {path} is a {type(found).__name__}, and not something that can be called",
            "Name a function that takes the parameters and gives back a torch.optim.Optimizer.",
        )
    return found
