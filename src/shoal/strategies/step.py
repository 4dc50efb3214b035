"""Building blocks of all strategies: accumulate a share, evaluate a batch."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.autograd import Variable

from shoal.data.dataset import Batch
from shoal.models.common import evaluation_mode
from shoal.models.metrics import Measure
from shoal.strategies.strategy import Gradients, Share, Sums

Loss = Callable[[Tensor, Tensor], Tensor]
"""`loss(outputs, labels)`: the sum over the samples."""


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
        outputs = model(batch.inputs)
    return sums_of(outputs, loss, batch, measures)


def sums_of(outputs: Tensor, loss: Loss, batch: Batch, measures: Sequence[Measure] = ()) -> Sums:
    """Loss, correct predictions and metrics of a batch whose outputs are known; none correct for regression."""
    loss_sum, labels = loss(outputs, batch.labels), batch.labels
    metrics = torch.cat([each.sums(outputs, labels) for each in measures]) if measures else None
    if labels.is_floating_point():
        return Sums(loss_sum, torch.zeros_like(loss_sum), 0, batch.num_samples, metrics)
    hits = (outputs.argmax(-1) == labels).sum()
    return Sums(loss_sum, hits, labels.numel(), batch.num_samples, metrics)


def width_of(measures: Sequence[Measure]) -> int:
    """The number of elements of `Sums.packed`."""
    return 2 + sum(each.width for each in measures)
