"""Build the model of a configuration, with its initial weights."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from shoal.config.choices import options_of
from shoal.config.custom import calling, check_options, load
from shoal.config.sections.model import BuiltInModelConfig, ModelConfig
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError
from shoal.models.common import random_state_kept
from shoal.models.initialise import initialise
from shoal.models.lenet import lenet
from shoal.models.mlp import linear, mlp
from shoal.models.resnet18 import resnet18
from shoal.models.transformer import transformer

MODELS: dict[str, Callable[..., nn.Module]] = {
    "linear": linear,
    "mlp": mlp,
    "lenet": lenet,
    "resnet18": resnet18,
    "transformer": transformer,
}
"""Each takes (input_shape, outputs), and the options of its configuration by keyword."""


def build(config: ModelConfig, input_shape: tuple[int, ...], outputs: int, seed: int) -> nn.Module:
    """The model on the CPU in float32; its weights are a function of the configuration and the seed.

    A built-in model is constructed on the meta device and then initialised parameter by parameter (see `initialise`):
    torch's global random state is neither read nor changed. A user's own model uses that state. It is seeded with
    `seed` for the call and restored afterwards, so the weights are reproducible; but they depend on the order of
    construction, and a part of such a model cannot be initialised alone.

    >>> from shoal.config.sections.model import LenetConfig
    >>> net = build(LenetConfig(), (1, 28, 28), outputs=10, seed=0)
    >>> sum(param.numel() for param in net.parameters())
    51902
    """
    if isinstance(config, Custom):
        return _build_custom(config, seed)
    model = without_weights(config, input_shape, outputs)
    initialise(model, seed)
    return model


def on_meta(config: BuiltInModelConfig, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A built-in model on torch's meta device: its tensors have shapes and no memory."""
    with torch.device("meta"), _WithoutNormal():
        try:
            return MODELS[config.name](input_shape, outputs, **options_of(config))
        except RuntimeError as error:  # torch's sizes are 64-bit numbers of bytes
            raise ConfigError(
                f"model {config.name} is too large: {error}", "Choose smaller sizes."
            ) from error


class _WithoutNormal(TorchFunctionMode):
    """Leaves `normal_` out, for which torch imports its compiler on the meta device: seconds, to draw no value."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is nn.init.normal_:
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def without_weights(config: BuiltInModelConfig, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A built-in model whose parameters have no values yet: their memory is reserved, and takes nothing until used."""
    model = on_meta(config, input_shape, outputs)
    # As `to_empty`, but using only the shapes of meta tensors: anything else imports sympy, which takes half a second.
    model._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype))  # pyright: ignore[reportPrivateUsage]
    return model


def _build_custom(config: Custom, seed: int) -> nn.Module:
    with calling("model", config), random_state_kept():
        function = load("model", config)
        check_options("model", config, function)
        torch.default_generator.manual_seed(seed)
        model = function(**dict(config.options))
    if not isinstance(model, nn.Module):
        raise ConfigError(
            f"model {config.name} returned a value of type {type(model).__name__}, expected a torch.nn.Module",
            "Return the network; shoal builds the optimizer and the training loop.",
        )
    return model
