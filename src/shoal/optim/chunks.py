"""Split large tensors into chunks that fit the processor's cache.

An update is several operations on the same elements. On whole tensors, every operation reads its operands from memory
and writes its temporaries there; on chunks, all but the first operation find them in the cache.
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

Row = tuple[Tensor, ...]
"""One parameter's tensors: (param, grad, *state)."""

BYTES_PER_THREAD = 2**20
"""Bytes of each tensor that one thread works on at a time.

Smaller chunks use faster caches, but each costs a few calls: 1 MiB (256k floats) was the smallest size without
measurable call overhead on a slow ARM core; on an x86 server it took 0.54 of foreach's time, and 256 KiB took 0.50.
`bench/optim.py` measures both.
"""


def chunks(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows one by one: small ones whole, large ones as flat chunks in order; all are views of the rows.

    Element-wise arithmetic on chunks gives the same bits as on the whole. Rows on a GPU are never split, because calls
    would cost more than they save; nor are rows that cannot be flattened because their tensors have gaps or different
    memory orders.

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


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill one block of memory without gaps or overlaps, in any order.

    >>> matrix = torch.zeros(4, 6)
    >>> is_dense(matrix.T), is_dense(matrix[:, :3]), is_dense(torch.zeros(1).expand(5))
    (True, False, False)
    """
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue  # the stride of a dimension of size 1 has no effect
        if stride != expected:
            return False
        expected *= size
    return True


def _can_be_flattened(row: Row) -> bool:
    return is_dense(row[0]) and len({tensor.stride() for tensor in row}) == 1


def _flattened(tensor: Tensor) -> Tensor:
    """A view of a dense tensor's elements in memory order."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))
