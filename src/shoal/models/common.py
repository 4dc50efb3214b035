"""Shared by the networks, and by everything that runs a model of any kind."""

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from shoal.errors import ConfigError, WrapperError


def times(shape: Sequence[int]) -> str:
    """A shape with × between the sizes.

    >>> times((1, 28, 28))
    '1×28×28'
    """
    return "×".join(map(str, shape))


def picture_shape(model: str, input_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width; a ConfigError if the input is not a picture."""
    if len(input_shape) != 3:
        raise ConfigError(
            f"{model} takes pictures, channels×height×width, but the data's inputs are {times(input_shape)}",
            "Use --model mlp for vectors, or --model transformer for text.",
        )
    channels, height, width = input_shape
    return channels, height, width


def check_has_values(model: nn.Module) -> None:
    """Refuse a model with a parameter or buffer that has no values yet."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    for name, tensor in tensors:
        if nn.parameter.is_lazy(tensor):
            raise WrapperError(
                f"parameter '{name}' has no shape yet: its layer is lazy", "Run the model on a sample first."
            )
        if tensor.is_meta:
            raise WrapperError(
                f"'{name}' of the model is on the meta device, where tensors have a shape and no numbers",
                'First call model.to_empty(device="cpu"), or "cuda", and initialise the model or load its weights.',
            )


def may_write_into_input(module: nn.Module) -> bool:
    """Whether a module, or one inside it, says that it works in place: it then must not be given a leaf.

    >>> may_write_into_input(nn.Sequential(nn.ReLU(inplace=True))), may_write_into_input(nn.ReLU())
    (True, False)
    """
    return any(getattr(each, "inplace", False) is True for each in module.modules())


@contextmanager
def evaluation_mode(model: nn.Module) -> Generator[None]:
    """Within this context every module is in evaluation mode; after it, in the mode it had before."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


# Torch's random state is global to the process: two threads must not seed it at once.
_RANDOM_STATE = threading.Lock()


@contextmanager
def random_state_kept(device: torch.device | None = None) -> Generator[None]:
    """Within this context torch's random state is this thread's; after it, as before: the CPU's and a GPU's.

    Not safe: waiting for another worker inside, which may be a thread that waits for the context.
    """
    devices = [device] if device is not None and device.type == "cuda" else []
    with _RANDOM_STATE, torch.random.fork_rng(devices=devices):
        yield
