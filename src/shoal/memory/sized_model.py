"""A model whose tensors have sizes and no memory: its passes are counted without computing anything.

In float32 it is on torch's meta device. Autocast has no effect there, so with `--precision bf16` its tensors are
torch's fake ones: they have no memory either, and operations take them for tensors of a CPU.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from shoal import models
from shoal.config.kinds import options_of
from shoal.config.schema import RunConfig
from shoal.config.sections.values import Custom
from shoal.data.dataset import Batch, DataSet
from shoal.models.builder import MODELS, on_meta
from shoal.training.memory.storage import store_parameters

Autocast = Callable[[], AbstractContextManager[object]]
"""The context for forward and loss."""


class SizedModel(NamedTuple):
    """A model, and what its passes run in."""

    model: nn.Module
    autocast: Autocast = nullcontext


@contextmanager
def sized_model(config: RunConfig, dataset: DataSet) -> Generator[SizedModel]:
    """The model of a run as it computes on a CPU, to be called inside; a user's own model is built as usual."""
    if config.precision != "bf16" or isinstance(config.model, Custom):
        yield SizedModel(without_memory(config, dataset))
        return
    with FakeTensorMode():
        model = MODELS[config.model.name](dataset.input_shape, dataset.outputs, **options_of(config.model))
        store_parameters(config, model)
        yield SizedModel(model, lambda: torch.autocast("cpu", torch.bfloat16))


def without_memory(config: RunConfig, dataset: DataSet) -> nn.Module:
    """The model without weights, on torch's meta device; a user's own model is built as usual."""
    if isinstance(config.model, Custom):
        return models.build(config.model, dataset.input_shape, dataset.outputs, config.seed)
    return on_meta(config.model, dataset.input_shape, dataset.outputs)


def have_no_memory(tensors: Iterable[Tensor]) -> bool:
    """Whether all of these tensors have sizes alone."""
    return all(tensor.is_meta or isinstance(tensor, FakeTensor) for tensor in tensors)


def sized_batch(batch: Batch, model: nn.Module) -> tuple[Tensor, Tensor]:
    """Inputs and labels without memory, where the model is."""
    device = next((param.device for param in model.parameters()), torch.device("meta"))
    inputs, labels = (
        torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        for tensor in (batch.inputs, batch.labels)
    )
    return inputs, labels
