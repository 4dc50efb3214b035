"""A model in evaluation mode for a while."""

from collections.abc import Generator
from contextlib import contextmanager

from torch import nn


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
