"""Sums along the balanced tree over ranks, for groups whose library adds in an order of its own.

`tree_summed(group)` is a group with the same behaviour, whose sums have the bits of shared memory's: member i gets all
members' i-th pieces, adds them along the tree, and sends the result to all. Each member sends as much as in a ring: n
elements less one piece, twice for an all-reduce. The calls block, so that nothing overlaps with computation.
"""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from shoal.comm.group import Finished, Group, Work
from shoal.comm.reduction import Op, tree_reduce
from shoal.comm.signature import Signature
from shoal.comm.wrapped_group import WrappedGroup


def tree_summed(group: Group) -> Group:
    """The group, wrapped unless it already sums along the tree. Two members have no other order."""
    return group if group.sums_along_tree or group.size <= 2 else TreeSums(group)


@final
class TreeSums(WrappedGroup):
    """A group that sums along the balanced tree over ranks, and does everything else as `group` does.

    >>> from shoal.comm.threads.group import ThreadGroup
    >>> (alone,) = ThreadGroup.world(1)
    >>> buffer = torch.ones(3)
    >>> TreeSums(alone).all_reduce(buffer).wait()
    >>> buffer
    tensor([1., 1., 1.])
    """

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.sums_along_tree = True

    def issue(self, call: Signature, piece: Tensor, whole: Tensor | None = None) -> Work:
        """Start a collective; sums of floating-point numbers are over when this returns."""
        if call.op is Op.SUM and piece.is_floating_point():
            if call.operation == "all_reduce":
                self._all_reduce(piece)
                return Finished()
            if call.operation == "reduce_scatter" and whole is not None:
                self._reduce_scatter(piece, whole)
                return Finished()
        return self._group.issue(call, piece, whole)

    def _reduce_scatter(self, piece: Tensor, whole: Tensor) -> None:
        """Phase 1, every member gets all pieces that it is to add. Phase 2, it adds them."""
        pieces = torch.empty_like(whole, memory_format=torch.contiguous_format)
        self._group.all_to_all(pieces, whole).wait()
        tree_reduce(Op.SUM, [each.view(piece.shape) for each in pieces.view(self.size, -1)], out=piece)

    def _all_reduce(self, buffer: Tensor) -> None:
        """Phases 1 and 2, reduce-scatter. Phase 3, all-gather of the sums."""
        numel = buffer.numel()
        padded = buffer.new_zeros(-(-numel // self.size) * self.size)
        padded[:numel] = buffer.reshape(-1)
        piece = padded.new_empty(padded.numel() // self.size)
        self._reduce_scatter(piece, padded)
        self._group.all_gather(padded, piece).wait()
        buffer.copy_(padded[:numel].view(buffer.shape))

    def around(self, group: Group, ranks: Sequence[int]) -> "TreeSums":
        """A smaller group that also sums along the tree."""
        return TreeSums(group)
