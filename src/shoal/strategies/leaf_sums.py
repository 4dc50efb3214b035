"""Sums over the leaves of a batch along a balanced binary tree: the same bits for any number of workers.

A *leaf* is a micro-batch of the global batch (`data/division/steps.py`). Floating-point addition is not associative:
the order of additions decides the bits of a sum. Here it is the order of one tree, whichever worker has which leaf::

                          g
                ┌─────────┴─────────┐             between workers: their group continues the tree (`comm/reduction.py`)
            g0 … g3             g4 … g7
           ┌────┴────┐         ┌────┴────┐        inside a worker: here
         g0+g1     g2+g3     g4+g5     g6+g7
    1      └─────────────── rank 0 ────────────┘
    2      └── rank 0 ──┘      └── rank 1 ──┘     with 2 workers each has a subtree of 4 leaves

A leaf that a short batch does not have is *absent*: absent + x = x. The number that does this in a sum between workers
is −0.0; 0.0 is not neutral, because −0.0 + 0.0 is 0.0.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from shoal.errors import ConfigError
from shoal.events.spans import SpanRecorder
from shoal.strategies.strategy import Gradients, Share


class Partial(NamedTuple):
    """The sum over some consecutive leaves."""

    loss: Tensor
    gradients: list[Tensor | None]
    """One for each parameter; None where none of the leaves reached it."""


@final
class BinaryCounter:
    """Adds up leaves like a counter that carries: two sums of 2ᵏ leaves each become one of 2ᵏ⁺¹.

    ::

        leaf 0   [0]
        leaf 1   [0+1]
        leaf 2   [0+1]  [2]
        leaf 3   [(0+1)+(2+3)]

    Memory: at most one sum for each bit of the number of leaves, and the leaf that is being added: log₂ n + 1.
    """

    def __init__(self) -> None:
        self._sums: list[tuple[int, Partial]] = []
        """Sums of 2ᵏ leaves with their k, the largest first."""

    def add(self, leaf: Partial) -> None:
        """Add the next leaf."""
        level = 0
        while self._sums and self._sums[-1][0] == level:
            leaf = _add(self._sums.pop()[1], leaf)
            level += 1
        self._sums.append((level, leaf))

    def total(self) -> Partial | None:
        """The sum of all leaves, with absent ones up to the next power of two; None without any leaf."""
        if not self._sums:
            return None
        _, total = self._sums.pop()
        while self._sums:
            total = _add(self._sums.pop()[1], total)
        return total


def _add(left: Partial, right: Partial) -> Partial:
    """The sum, in the memory of the left side."""
    pairs = [
        (a, b)
        for a, b in zip(left.gradients, right.gradients, strict=True)
        if a is not None and b is not None
    ]
    if pairs:
        torch._foreach_add_(*map(list, zip(*pairs, strict=True)))  # pyright: ignore[reportPrivateUsage]
    gradients = [b if a is None else a for a, b in zip(left.gradients, right.gradients, strict=True)]
    return Partial(left.loss + right.loss, gradients)


@final
class LeafSums:
    """Computes the leaves of a share one after the other, and sums them along the tree.

    Takes the place of `accumulate`: gradients are whole when all leaves are summed, and not in the last backward pass,
    so nothing can be sent during it. Memory: log₂ n + 1 gradients of the whole model for n leaves of this worker, under
    every strategy. Costs one addition of the gradients for each leaf but the first, as accumulating does.
    """

    def __init__(self, model: nn.Module, params: Mapping[str, Tensor], span: SpanRecorder) -> None:
        refuse_batch_statistics(model)
        self._params = list(params.values())
        self._span = span
        self._model = model
        self._has_checked_buffers = False

    def __call__(
        self,
        gradients: Gradients,
        share: Share,
        zero: Tensor,
        before_last: Callable[[], None] | None = None,
    ) -> Tensor:
        """Set the gradients of a share, and return its loss: each leaf's divided by the global number of samples.

        `before_last` is called when the gradients are whole.
        """
        scale = 1.0 / share.num_samples_global
        counter = BinaryCounter()
        buffers = None if self._has_checked_buffers else self._buffer_versions()
        for number, leaf in enumerate(share.parts):
            share.before_part(number)
            loss = gradients(leaf, scale) * scale
            if buffers is not None:
                self._check_buffers(buffers)
            with self._span("sum of leaves", "compute"):
                partial = Partial(loss, [param.grad for param in self._params])
                for param in self._params:
                    param.grad = None
                # A worker in lockstep with others (`lockstep.py`) computes empty batches, too: these are absent leaves.
                if leaf.num_samples:
                    counter.add(partial)
        total = counter.total()
        if total is None:
            return zero
        for param, gradient in zip(self._params, total.gradients, strict=True):
            param.grad = gradient
        if before_last is not None:
            before_last()
        return total.loss

    def _buffer_versions(self) -> dict[str, tuple[int, int]]:
        """What changes when a module writes to a buffer, or replaces it."""
        return {name: (id(buffer), buffer._version) for name, buffer in self._model.named_buffers()}  # pyright: ignore[reportPrivateUsage]

    def _check_buffers(self, before: Mapping[str, tuple[int, int]]) -> None:
        """After the first leaf: refuse a model of the user's own that keeps statistics."""
        self._has_checked_buffers = True
        changed = [name for name, version in self._buffer_versions().items() if before.get(name) != version]
        if changed:
            raise ConfigError(
                f"--reduction invariant does not support buffers that training changes: '{changed[0]}' would depend on "
                "which micro-batches a worker computes",
                "Use a model without running statistics.",
            )


def refuse_batch_statistics(model: nn.Module) -> None:
    """Refuse layers whose result for one sample depends on others: on which samples are computed together."""
    for name, module in model.named_modules():
        is_batch_norm = isinstance(module, nn.modules.batchnorm._BatchNorm)  # pyright: ignore[reportPrivateUsage]
        # A frozen one normalises each sample by numbers that stay as they are.
        if is_batch_norm and (module.training or module.running_mean is None):
            raise ConfigError(
                f"--reduction invariant does not support batch norm ('{name}'): its statistics depend on which samples "
                "are computed together",
                "Use another norm: --model.norm group for resnet18.",
            )


def total_of_rows(rows: Sequence[float], like: Tensor) -> float:
    """The sum of one number of every worker along the tree, in the precision of a tensor; 2ᵏ numbers.

    >>> total_of_rows([1.0, 2.0, 3.0, 4.0], torch.zeros(()))
    10.0
    """
    sums = like.new_tensor(rows)
    while len(sums) > 1:
        sums = sums[0::2] + sums[1::2]
    return sums.item()
