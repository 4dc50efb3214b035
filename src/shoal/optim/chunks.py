"""Walks large tensors in pieces that fit the processor's cache.

An update is several operations on the same elements. Done tensor by tensor, every operation fetches its operands from
memory again and writes its temporaries there; done piece by piece, all but the first find them in the cache.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

Row = tuple[Tensor, ...]
"""One parameter's tensors, (param, grad, *state), alike in shape and in the order of their elements in memory."""

BYTES_PER_THREAD = 2**20
"""Bytes of each tensor that one thread works on at a time.

Smaller pieces stay nearer to the processor, but each costs a handful of calls: 1 MiB (256k floats) was the smallest
that lost nothing to the calls on a slow ARM core, and on an x86 server it took 0.54 of foreach's time where 256 KiB
took 0.50. `bench/optim.py` measures both sides.
"""


def chunks(*row: Tensor) -> Iterable[Row]:
    """The row itself if it is small or not on a CPU, else flat pieces of it, in order; they share its memory.

    All tensors must be dense and alike in memory order (`flat.dense_rows` makes them so). Element-wise arithmetic on
    the pieces gives the same bits as on the whole. A GPU gets the whole: it has the bandwidth, and calls cost it more.

    >>> [piece.numel() for (piece,) in chunks(torch.zeros(3, 4))]
    [12]
    >>> pieces = list(chunks(torch.zeros(2000, 2000), torch.zeros(2000, 2000)))
    >>> sum(left.numel() for left, right in pieces)
    4000000
    """
    first = row[0]
    elements = BYTES_PER_THREAD // first.element_size() * torch.get_num_threads()
    if first.numel() <= elements or not first.is_cpu:
        return (row,)
    return zip(*(flattened(tensor).split(elements) for tensor in row), strict=True)


def flattened(tensor: Tensor) -> Tensor:
    """A dense tensor's elements in the order of memory, as a view."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))
