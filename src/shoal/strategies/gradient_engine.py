"""What every strategy computes: the gradients of a batch and of a share, and the sums of an evaluation.

Gradients come from an engine: torch's autograd, shoal's tape, or shoal's static graph. All three have one contract
(`Gradients`): they set scale · ∂(sum of losses)/∂θ as every parameter's gradient, or add it to that.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd import Variable

from shoal import models
from shoal.autograd import batch_gradients as own
from shoal.autograd import nn as layers
from shoal.config.choices import options_of
from shoal.config.sections.model import LossConfig
from shoal.config.sections.values import Custom
from shoal.data.dataset import Batch
from shoal.errors import AutogradError
from shoal.events.spans import SpanRecorder
from shoal.models.common import evaluation_mode
from shoal.models.losses import CountedLoss
from shoal.models.metrics import Measure
from shoal.nested import call
from shoal.strategies.compiled import Compiled
from shoal.strategies.loss_scale import LossScale
from shoal.strategies.strategy import Gradients, Share, Sums

Precision = Literal["float32", "tf32", "bf16", "fp16"]
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Formats of matrix products whose weights stay in float32."""

Loss = Callable[[Any, Any], Tensor]
"""`loss(outputs, labels)`: the sum over the samples; of nested samples, outputs and labels are what they are there."""
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
    compiled: Compiled | None = None,
    loss_scale: LossScale | None = None,
    function: Loss | None = None,
) -> GradientEngine:
    """The engine of that name for a model and a loss; only torch's supports `precision` and what follows it.

    `function` is the loss if it has been built already.
    """
    if name == "torch":
        built = function or models.build_loss(loss)
        return _by_torch(model, built, span, precision, saving, compiled, loss_scale)
    return _by_our_own(name, model, loss, span)


def _by_torch(
    model: nn.Module,
    loss: Loss,
    span: SpanRecorder,
    precision: Precision,
    saving: Saving | None,
    compiled: Compiled | None,
    loss_scale: LossScale | None,
) -> GradientEngine:
    # Weights, gradients and loss stay in float32. bfloat16 has the range of float32, float16 needs a loss scale.
    # (tf32 is a setting of the whole process: see `torch_settings`.)
    in_precision = (
        partial(torch.autocast, dtype=AUTOCAST[precision]) if precision in AUTOCAST else nullcontext
    )

    @contextmanager
    def with_saving(device: str) -> Generator[None]:
        assert saving is not None
        with in_precision(device), saving():
            yield

    autocast = in_precision if saving is None else with_saving

    def gradients(batch: Batch, scale: float) -> Tensor:
        kind = "compute" if compiled is None else compiled.kind(batch.num_samples)
        with span("forward", kind), autocast(batch.device.type):
            loss_sum = loss(call(model, batch.inputs, compiled), batch.labels)
        if loss_scale is not None:
            scale *= loss_scale.factor
            # The product is no number in float16.
            loss_sum = loss_sum.float() if loss_sum.dtype == torch.float16 else loss_sum
        with span("backward", kind):
            backward_from(loss_sum, loss_sum.new_full((), scale))
        return loss_sum.detach()

    params: dict[str, Tensor] = {
        name: param for name, param in model.named_parameters() if param.requires_grad
    }
    if loss_scale is not None:
        loss_scale.divide(params.values())
    return GradientEngine(gradients, params, torch_on_final, autocast)


def torch_on_final(param: Tensor, callback: Callable[[Tensor], None]) -> Callable[[], None]:
    """`OnFinal` for torch's autograd."""
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


def accumulate(
    gradients: Gradients, share: Share, zero: Tensor, before_last: Callable[[], None] | None = None
) -> Tensor:
    """Add up the gradients of all parts of a share; the loss, divided by the global number of samples.

    Sums of sums are sums: parts of any size, also none, give the gradient of the whole. `zero` is the loss of a share
    without samples: it has the device and the precision of the others. `before_last` is called before the last part,
    if there is any; to know it, the next part is made before the one in hand is used.
    """
    scale = 1.0 / share.num_samples_global
    total = zero
    parts = iter(share.parts)
    part = next(parts, None)
    while part is not None:
        following = next(parts, None)
        if following is None and before_last is not None:
            before_last()
        found = gradients(part, scale)
        total = found if total is zero else total + found
        part = following
    return total * scale


def backward_from(output: Tensor, gradient: Tensor) -> None:
    """Run backward from an output whose gradient is known: add its share to every parameter's gradient.

    What `output.backward(gradient)` does, less its check of shapes: for that, torch first imports sympy, which takes
    half a second of every start. (Multiplying the output by a number instead costs two operations in every step.)
    """
    Variable._execution_engine.run_backward(  # pyright: ignore[reportPrivateUsage]
        (output,), (gradient,), False, False, (), allow_unreachable=True, accumulate_grad=True
    )


def gradients_from(output: Tensor, gradient: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """The gradients of these inputs alone; every parameter's own gradient stays as it is.

    What `torch.autograd.grad` does, less the same check of shapes.
    """
    return Variable._execution_engine.run_backward(  # pyright: ignore[reportPrivateUsage]
        (output,), (gradient,), False, False, tuple(inputs), allow_unreachable=True, accumulate_grad=False
    )


@torch.no_grad()
def evaluate_batch(model: nn.Module, loss: Loss, batch: Batch, measures: Sequence[Measure] = ()) -> Sums:
    """Loss, correct predictions and metrics of a whole model on a batch, in evaluation mode."""
    with evaluation_mode(model):
        outputs = call(model, batch.inputs)
    return sums_of(outputs, loss, batch, measures)


def sums_of(outputs: Any, loss: Loss, batch: Batch, measures: Sequence[Measure] = ()) -> Sums:
    """Loss, correct predictions and metrics of a batch whose outputs are known; without classes none is correct."""
    labels = batch.labels
    loss_sum, count = (
        loss.pair(outputs, labels) if isinstance(loss, CountedLoss) else (loss(outputs, labels), None)
    )
    metrics = torch.cat([each.sums(outputs, labels) for each in measures]) if measures else None
    predictions = batch.num_classified
    if not predictions or not isinstance(outputs, Tensor):
        return Sums(loss_sum, torch.zeros_like(loss_sum), 0, batch.num_samples, metrics, count)
    hits = (outputs.argmax(-1) == labels).sum()
    return Sums(loss_sum, hits, predictions, batch.num_samples, metrics, count)
