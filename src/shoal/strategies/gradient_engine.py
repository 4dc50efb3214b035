"""Gradient engines compute the gradients of a batch: torch's autograd, shoal's tape, or shoal's static graph.

All three have one contract (`Gradients`): they set scale · ∂(sum of losses)/∂θ as every parameter's gradient, or add it
to that.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from shoal import models
from shoal.autograd import batch_gradients as own
from shoal.autograd import nn as layers
from shoal.config.kinds import options_of
from shoal.config.sections.model import LossConfig
from shoal.config.sections.values import Custom
from shoal.data.dataset import Batch
from shoal.errors import AutogradError
from shoal.events.spans import SpanRecorder
from shoal.strategies.step import backward_from
from shoal.strategies.strategy import Gradients

Precision = Literal["float32", "tf32", "bf16"]

Saving = Callable[[], AbstractContextManager[object]]
"""A context for forward and loss that decides where tensors that are saved for backward wait for it."""
OnFinal = Callable[[Tensor, Callable[[Tensor], None]], Callable[[], None]]
"""`on_final(param, callback)`: call `callback(param)` when the gradient is final; returns a function to remove it."""


@dataclass(frozen=True)
class GradientEngine:
    """A way to compute gradients, and the parameters."""

    gradients: Gradients
    params: dict[str, Tensor]
    """The parameters that are trained, under the model's names; they share the model's memory."""
    on_final: OnFinal
    """Calls back when a parameter's gradient of one backward pass is complete in `param.grad`."""
    autocast: Callable[[str], AbstractContextManager[object]] = nullcontext
    """The context for forward pass and loss, on a device of that type."""


def build_engine(
    name: str,
    model: nn.Module,
    loss: LossConfig,
    span: SpanRecorder,
    precision: Precision = "float32",
    saving: Saving | None = None,
) -> GradientEngine:
    """The engine of that name for a model and a loss; only torch's supports `precision` and `saving`."""
    if name == "torch":
        return _by_torch(model, loss, span, precision, saving)
    return _by_our_own(name, model, loss, span)


def _by_torch(
    model: nn.Module, config: LossConfig, span: SpanRecorder, precision: Precision, saving: Saving | None
) -> GradientEngine:
    loss = models.build_loss(config)
    autocasts: dict[Precision, Callable[[str], AbstractContextManager[object]]] = {
        "float32": nullcontext,
        "tf32": nullcontext,  # a setting of the whole process: see `torch_settings`
        # Weights, gradients and loss stay in float32. bfloat16 has the range of float32: no loss scaling is needed.
        "bf16": lambda device: torch.autocast(device, torch.bfloat16),
    }
    autocast = autocasts[precision] if saving is None else _both(autocasts[precision], saving)

    def gradients(batch: Batch, scale: float) -> Tensor:
        with span("forward", "compute"), autocast(batch.inputs.device.type):
            loss_sum = loss(model(batch.inputs), batch.labels)
        with span("backward", "compute"):
            backward_from(loss_sum, loss_sum.new_full((), scale))
        return loss_sum.detach()

    params: dict[str, Tensor] = {
        name: param for name, param in model.named_parameters() if param.requires_grad
    }
    return GradientEngine(gradients, params, _torch_on_final, autocast)


def _both(
    autocast: Callable[[str], AbstractContextManager[object]], saving: Saving
) -> Callable[[str], AbstractContextManager[object]]:
    @contextmanager
    def context(device: str) -> Generator[None]:
        with autocast(device), saving():
            yield

    return context


def _torch_on_final(param: Tensor, callback: Callable[[Tensor], None]) -> Callable[[], None]:
    return param.register_post_accumulate_grad_hook(callback).remove


def _by_our_own(name: str, model: nn.Module, config: LossConfig, span: SpanRecorder) -> GradientEngine:
    """Convert the module to our layers, which share the memory of its parameters."""
    if isinstance(config, Custom):
        raise AutogradError(
            f"--engine {name} does not support loss {config.name}, which uses torch's operations",
            f"Use one of {', '.join(own.LOSSES)}, or --engine torch.",
        )
    layer = layers.from_torch(model)
    loss = own.build_loss(config.name, **options_of(config))
    compute = {"tape": own.tape_gradients, "static": own.static_gradients}[name](layer, loss)

    def gradients(batch: Batch, scale: float) -> Tensor:
        if isinstance(compute, own.StaticGradients):
            compute.prepare(batch.inputs, batch.labels, span("compile", "compile"))
        with span(name, "compute"):
            return compute(batch.inputs, batch.labels, scale)

    params = {path: param.value for path, param in layer.named_parameters()}
    return GradientEngine(gradients, params, compute.on_final)
