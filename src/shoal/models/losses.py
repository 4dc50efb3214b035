"""Losses: the sum over samples, or a pair (sum, count).

Sums of the parts of a batch add up. Outputs are [N, width], or [N, positions…, width] for text; a sample's loss is the
mean over its positions. An empty batch has loss zero and a gradient of zeros. Training divides a sum by the number of
samples of all workers; of a pair, by the count of all workers.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast, final

import torch
from torch import Tensor
from torch.nn import functional as F

from shoal.config.choices import options_of
from shoal.config.custom import calling, check_options, load
from shoal.config.sections.model import LossConfig
from shoal.config.sections.values import Custom

Loss = Callable[[Any, Any], Tensor]


def cross_entropy(outputs: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """−Σ log softmax(output)[label]; with smoothing s the target is (1 − s)·label + s·(uniform).

    >>> cross_entropy(torch.zeros(3, 2), torch.tensor([0, 1, 1]))  # three times log 2
    tensor(2.0794)
    """
    total = F.cross_entropy(
        outputs.flatten(0, -2), labels.flatten().long(), reduction="sum", label_smoothing=smoothing
    )
    return _mean_over_positions(total, outputs)


def mse(outputs: Tensor, labels: Tensor) -> Tensor:
    """Σ ‖output − target‖²: also summed over the components, where torch's mean divides by their number.

    >>> mse(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 0.0]]))
    tensor(5.)
    """
    total = F.mse_loss(outputs, targets(outputs, labels), reduction="sum")
    return _mean_over_positions(total, outputs)


def mae(outputs: Tensor, labels: Tensor) -> Tensor:
    """Σ |output − target|₁: also summed over the components.

    >>> mae(torch.tensor([[1.0, 2.0]]), torch.tensor([1]))  # against the one-hot target (0, 1)
    tensor(2.)
    """
    total = F.l1_loss(outputs, targets(outputs, labels), reduction="sum")
    return _mean_over_positions(total, outputs)


LOSSES: dict[str, Callable[..., Tensor]] = {"cross_entropy": cross_entropy, "mse": mse, "mae": mae}
"""Each takes (outputs, labels), and the options of its configuration by keyword."""


def build_loss(config: LossConfig) -> Loss:
    """The loss as a function (outputs, labels) → sum over samples, a tensor without dimensions.

    A user's own loss is called as `function(outputs, labels, **options)` and returns the sum, or a pair (sum, count);
    `check_fit` checks this. Of samples that have no labels beside their inputs, it gets the inputs.

    >>> from shoal.config.sections.model import MseConfig
    >>> build_loss(MseConfig())(torch.ones(4, 1), torch.zeros(4))
    tensor(4.)
    """
    if isinstance(config, Custom):
        with calling("loss", config):
            function = load("loss", config)
        check_options("loss", config, function, given=2)
        return partial(function, **dict(config.options))
    return partial(LOSSES[config.name], **options_of(config))


def targets(outputs: Tensor, labels: Tensor) -> Tensor:
    """The target values of the outputs: floating-point labels unchanged, integer labels as one-hot rows.

    >>> targets(torch.zeros(2, 3), torch.tensor([2, 0]))
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """
    if labels.is_floating_point():
        return labels.view_as(outputs)
    # By comparison: torch's one_hot reads the largest label on the host, which waits for the GPU.
    classes = torch.arange(outputs.shape[-1], device=outputs.device)
    return (labels.unsqueeze(-1) == classes).to(outputs.dtype)


def _mean_over_positions(total: Tensor, outputs: Tensor) -> Tensor:
    positions = outputs.shape[1:-1].numel()
    return total if positions == 1 else total / positions


def of_pair(returned: Any) -> tuple[Any, Any]:
    """The sum and the count that a loss has returned; a sum alone has no count."""
    if isinstance(returned, tuple) and len(cast(tuple[Any, ...], returned)) == 2:
        return cast(tuple[Any, Any], returned)
    return returned, None


@final
class CountedLoss:
    """A loss that returns pairs (sum, count), called like one that returns sums; counts add up until they are taken.

    Training divides by the count of all workers, which is known only after backward: gradients are computed as if it
    were the number of samples, and multiplied by their quotient before the update.
    """

    def __init__(self, loss: Callable[[Any, Any], Any]) -> None:
        self._loss = loss
        self._count: Tensor | float = 0.0

    def pair(self, outputs: Any, labels: Any) -> tuple[Tensor, Any]:
        """The sum and the count; None is the count of a loss that returns sums alone."""
        return of_pair(self._loss(outputs, labels))

    def __call__(self, outputs: Any, labels: Any) -> Tensor:
        """The sum; its count is added to those of the step, unless this is a pass without gradients."""
        total, count = self.pair(outputs, labels)
        if torch.is_grad_enabled():
            self._count = self._count + (count.detach() if isinstance(count, Tensor) else count)
        return total

    def take(self) -> Tensor | float:
        """The count of everything since the last call."""
        count, self._count = self._count, 0.0
        return count
