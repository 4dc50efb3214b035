"""One copy of the weights in memory that all ranks of a machine map: every worker updates it with its own gradients."""

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.strategies.server.shards import buckets_of, load_slices
from shoal.strategies.update import Updated


@final
class CommonWeights:
    """One copy of a layout's parameters in memory that all members map: what their updates change.

    ::

        backward          gradients, where autograd has put them
        take_gradients    these tensors are the gradients of the common weights: nothing is copied
        the update        changes the common weights
        read              copies them to the layout's parameters, while they are in the caches of this core

    A worker computes with its own copy: weights of one version, while others update the common ones.

    Costs, with P bytes of parameters: the update of one machine, in memory that other cores write; P copied.
    """

    def __init__(self, layout: Updated, group: Group) -> None:
        """They start as rank 0's parameters. A collective."""
        self.span, self.zero = layout.span, layout.zero
        self.sharded_over, self.repeated = layout.sharded_over, layout.repeated
        self.place_of, self.all_norms = layout.place_of, layout.all_norms
        self._group = group
        common: dict[str, Tensor] = {}
        for bucket in buckets_of(layout.params):
            memory = group.common(bucket.flat.numel(), bucket.flat.dtype)
            common |= zip(bucket.names, bucket.split(memory), strict=True)
        self.params = {name: common[name] for name in layout.params}
        self._own = layout.params
        self.write()

    def take_gradients(self) -> list[str]:
        """Have the next update use this worker's gradients; the names of parameters without one, which it skips."""
        for weights, own in zip(self.params.values(), self._own.values(), strict=True):
            weights.grad = own.grad
        return [name for name, weights in self.params.items() if weights.grad is None]

    @property
    def gradients(self) -> list[Tensor]:
        """What the next update uses. A caller may change them in place."""
        return [gradient for weights in self.params.values() if (gradient := weights.grad) is not None]

    def drop_gradients(self) -> None:
        """Forget the gradients, so that the next backward pass can use their memory."""
        for weights in self.params.values():
            weights.grad = None

    @torch.no_grad()
    def read(self) -> None:
        """Make the layout's parameters the weights as they are now."""
        torch._foreach_copy_([*self._own.values()], [*self.params.values()])  # pyright: ignore[reportPrivateUsage]

    @torch.no_grad()
    def write(self) -> None:
        """Make the weights rank 0's parameters. A collective."""
        if self._group.rank == 0:
            torch._foreach_copy_([*self.params.values()], [*self._own.values()])  # pyright: ignore[reportPrivateUsage]
        self._group.barrier().wait()

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load saved weights, for all members."""
        load_slices(self, saved)
