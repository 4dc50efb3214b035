"""Gradients of a batch, by the tape or by a static graph: what training calls.

Both do what torch's `(loss_sum * scale).backward()` does: the loss is the sum over samples, and scale · ∂loss/∂p is
written or added to `p.value.grad`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, final

import torch
from torch import Tensor

import shoal.autograd.derived as derived
import shoal.autograd.ops as ops
from shoal.autograd.gradient import backward
from shoal.autograd.nn import Layer, parameters
from shoal.autograd.static import compile as compile_graph
from shoal.autograd.tape import Tape
from shoal.autograd.variable import Hook, Variable
from shoal.errors import AutogradError, unknown

Loss = Callable[[Any, Any], Variable]
"""`loss(outputs, labels)`: the sum over samples, composed of operations of this engine."""


class BatchGradients(ABC):
    """`gradients(inputs, labels, scale)` adds scale · ∂loss/∂p to every parameter's gradient and returns the loss."""

    def __init__(self, layer: Layer, loss: Loss | str) -> None:
        self.parameters = parameters(layer)
        self._layer = layer
        self._loss = build_loss(loss) if isinstance(loss, str) else loss

    @abstractmethod
    def __call__(self, inputs: Tensor, labels: Tensor, scale: float = 1.0) -> Tensor:
        """The sum of losses over the samples, a tensor without dimensions."""

    def on_final(self, tensor: Tensor, callback: Hook) -> Callable[[], None]:
        """Call `callback(tensor)` when this parameter's gradient is complete; returns a function to remove it."""
        for parameter in self.parameters:
            if parameter.value is tensor:
                return parameter.on_final(callback)
        raise AutogradError(
            f"a tensor of shape {tuple(tensor.shape)} is not a parameter of this layer",
            "Pass parameter.value of one of nn.parameters(layer).",
        )


def _mse(outputs: Any, labels: Any) -> Variable:
    """Σ ‖output − target‖², with integer labels as one-hot targets."""
    if not labels.dtype.is_floating_point:
        labels = ops.one_hot(labels, size=outputs.shape[-1], dtype=outputs.dtype)
    elif labels.shape != outputs.shape:
        labels = ops.reshape(labels, shape=tuple(outputs.shape))
    return derived.mse(outputs, labels, "sum")


LOSSES: dict[str, Callable[..., Variable]] = {
    "cross_entropy": partial(derived.cross_entropy, reduction="sum"),
    "mse": _mse,
}
"""Each is the sum over samples, and takes the loss's options by keyword."""


def _as_indices(labels: Tensor) -> Tensor:
    """Integers as int64, which the kernels need; floating-point labels unchanged."""
    return labels if labels.is_floating_point() else labels.long()


def build_loss(name: str, **options: Any) -> Loss:
    """The loss of that name."""
    if name not in LOSSES:
        raise AutogradError(
            unknown("loss of this engine", name, LOSSES), "Use --engine torch for other losses."
        )
    return partial(LOSSES[name], **options)


def tape_gradients(layer: Layer, loss: Loss | str = "cross_entropy") -> BatchGradients:
    """Gradients by the dynamic tape, which is recorded, walked and dropped in every call.

    >>> from shoal.autograd import nn
    >>> layer = nn.from_torch(torch.nn.Linear(2, 3))
    >>> gradients = tape_gradients(layer)
    >>> loss = gradients(torch.ones(4, 2), torch.tensor([0, 1, 2, 0]), scale=0.25)
    >>> [tuple(p.value.grad.shape) for p in nn.parameters(layer)]
    [(3, 2), (3,)]
    """
    return _TapeGradients(layer, loss)


def static_gradients(
    layer: Layer, loss: Loss | str = "cross_entropy", say: Callable[[str], None] | None = None
) -> "StaticGradients":
    """Gradients by a graph that is compiled at the first batch, and again for each new shape, reported to `say`.

    Not safe: a gradient's memory belongs to the plan (see `compile`): clone gradients that must survive the next call.
    """
    return StaticGradients(layer, loss, say)


@final
class _TapeGradients(BatchGradients):
    def __call__(self, inputs: Tensor, labels: Tensor, scale: float = 1.0) -> Tensor:
        with Tape():
            loss = self._loss(self._layer(inputs), _as_indices(labels))
            backward(loss, self.parameters, torch.full_like(loss.value, scale), release=True)
            return loss.value


@final
class StaticGradients(BatchGradients):
    """Gradients by a compiled graph; `compiled` shows the plan."""

    def __init__(self, layer: Layer, loss: Loss | str, say: Callable[[str], None] | None) -> None:
        super().__init__(layer, loss)

        def step(inputs: Variable, labels: Variable, scale: Variable) -> Variable:
            total = self._loss(layer(inputs), labels)
            backward(total, self.parameters, scale)
            return total

        self.compiled = compile_graph(step, say=say) if say else compile_graph(step)

    def __call__(self, inputs: Tensor, labels: Tensor, scale: float = 1.0) -> Tensor:
        """Run the plan for a batch of this shape."""
        return self.compiled(*self._arguments(inputs, labels, scale))

    def prepare(self, inputs: Tensor, labels: Tensor, timed: AbstractContextManager[Any]) -> None:
        """Compile for a batch of this shape inside `timed`, unless there is a plan for it."""
        arguments = self._arguments(inputs, labels, 1.0)
        if not self.compiled.has_plan(*arguments):
            with timed:
                self.compiled.plan(*arguments)

    def _arguments(self, inputs: Tensor, labels: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
        # The scale is an input of the graph, so that a batch with another scale uses the same plan.
        dtype = self.parameters[0].dtype if self.parameters else torch.float32
        return inputs, _as_indices(labels), torch.tensor(scale, dtype=dtype, device=inputs.device)
