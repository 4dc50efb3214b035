"""Gradient engines: what turns a batch into gradients. Torch's autograd, our own tape, or our own static graph.

All three keep one contract (`Gradients`): scale · ∂(sum of losses)/∂θ is set as, or added to, every parameter's
gradient. A strategy takes an engine and knows nothing else about it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from shoal import models
from shoal.autograd import batch_gradients as own
from shoal.autograd import nn as layers
from shoal.config.kinds import options_of
from shoal.config.schema import Custom, LossConfig
from shoal.data.dataset import Batch
from shoal.errors import AutogradError
from shoal.events.spans import SpanRecorder
from shoal.parallel.step import backward_from
from shoal.parallel.strategy import Gradients

Precision = Literal["float32", "tf32", "bf16"]

OnFinal = Callable[[Tensor, Callable[[Tensor], None]], Callable[[], None]]
"""`on_final(param, callback)`: call `callback(param)` then; gives what removes it again."""


@dataclass(frozen=True)
class GradientEngine:
    """Gradients, and the tensors they are of."""

    gradients: Gradients
    params: dict[str, Tensor]
    """What the optimizer updates, under the model's names; nothing frozen. Their memory is the model's own."""
    on_final: OnFinal
    """Tells when a parameter's gradient of one backward pass is complete: in `param.grad`, nothing more to come."""
    autocast: Callable[[str], AbstractContextManager[object]] = lambda device: nullcontext()
    """What forward pass and loss are computed under, on a device of that type."""


def build_engine(
    name: str, model: nn.Module, loss: LossConfig, span: SpanRecorder, precision: Precision = "float32"
) -> GradientEngine:
    """The engine of that name for a model and a loss; `precision` is torch's alone."""
    return (
        _by_torch(model, loss, span, precision) if name == "torch" else _by_our_own(name, model, loss, span)
    )


def _by_torch(
    model: nn.Module, config: LossConfig, span: SpanRecorder, precision: Precision
) -> GradientEngine:
    loss = models.build_loss(config)
    autocasts: dict[Precision, Callable[[str], AbstractContextManager[object]]] = {
        "float32": lambda device: nullcontext(),
        "tf32": lambda device: nullcontext(),  # a setting of the whole process: see `torch_settings`
        # Weights, their gradients and the loss stay in float32; bfloat16 has its range, so nothing need be scaled.
        "bf16": lambda device: torch.autocast(device, torch.bfloat16),
    }
    autocast = autocasts[precision]

    def gradients(batch: Batch, scale: float) -> Tensor:
        with span("forward", "compute"), autocast(batch.inputs.device.type):
            loss_sum = loss(model(batch.inputs), batch.labels)
        with span("backward", "compute"):
            backward_from(loss_sum, loss_sum.new_tensor(scale))
        return loss_sum.detach()

    params: dict[str, Tensor] = {
        name: param for name, param in model.named_parameters() if param.requires_grad
    }
    return GradientEngine(gradients, params, _torch_on_final, autocast)


def _torch_on_final(param: Tensor, callback: Callable[[Tensor], None]) -> Callable[[], None]:
    return param.register_post_accumulate_grad_hook(callback).remove


def _by_our_own(name: str, model: nn.Module, config: LossConfig, span: SpanRecorder) -> GradientEngine:
    """The module is lowered to our layers, which compute on the very memory of its parameters."""
    if isinstance(config, Custom):
        raise AutogradError(
            f"--engine {name} differentiates its own operations, and loss {config.name} is made of torch's",
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
