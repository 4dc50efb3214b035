"""Walks large tensors in pieces that fit the processor's cache.

An update is several operations on the same elements. Done tensor by tensor, every operation fetches its operands from
memory again and writes its temporaries there; done piece by piece, all but the first find them in the cache.
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

Row = tuple[Tensor, ...]
"""One parameter's tensors: (param, grad, *state)."""

BYTES_PER_THREAD = 2**20
"""Bytes of each tensor that one thread works on at a time.

Smaller pieces stay nearer to the processor, but each costs a handful of calls: 1 MiB (256k floats) was the smallest
that lost nothing to the calls on a slow ARM core, and on an x86 server it took 0.54 of foreach's time where 256 KiB
took 0.50. `bench/optim.py` measures both sides.
"""


def chunks(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows one by one: small ones as they are, large ones as flat pieces in order; all share the rows' memory.

    Element-wise arithmetic on the pieces gives the same bits as on the whole. Some rows stay whole however large they
    are: those on a GPU, which has the bandwidth and to which calls cost more than they save, and those that cannot be
    flattened because their tensors have gaps or lie in different orders.

    >>> [piece.numel() for (piece,) in chunks([(torch.zeros(3, 4),)])]
    [12]
    >>> pieces = list(chunks([(torch.zeros(5000, 5000), torch.zeros(5000, 5000))]))
    >>> sum(left.numel() for left, right in pieces)
    25000000
    """
    bytes_at_once = BYTES_PER_THREAD * torch.get_num_threads()
    for row in rows:
        first = row[0]
        if first.nbytes <= bytes_at_once or not first.is_cpu or not _can_be_flattened(row):
            yield row
        else:
            elements = bytes_at_once // first.element_size()
            yield from zip(*(_flattened(tensor).split(elements) for tensor in row), strict=True)


def columns(rows: Iterable[Row]) -> list[list[Tensor]]:
    """All parameters, all gradients, and so on: what operations on lists of tensors take."""
    return [list(column) for column in zip(*rows, strict=True)]


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill one stretch of memory with neither gaps nor overlaps, in whatever order.

    >>> matrix = torch.zeros(4, 6)
    >>> is_dense(matrix.T), is_dense(matrix[:, :3]), is_dense(torch.zeros(1).expand(5))
    (True, False, False)
    """
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue  # a single element never steps, so its stride says nothing
        if stride != expected:
            return False
        expected *= size
    return True


def _can_be_flattened(row: Row) -> bool:
    return is_dense(row[0]) and len({tensor.stride() for tensor in row}) == 1


def _flattened(tensor: Tensor) -> Tensor:
    """A dense tensor's elements in the order of memory, as a view."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))
