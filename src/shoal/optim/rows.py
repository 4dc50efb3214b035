"""Rows of tensors that are updated together: split into chunks that fit the cache, or joined where they are adjacent.

An update is several operations on the same elements. On whole tensors, every operation reads its operands from memory
and writes its temporaries there; on chunks, all but the first operation find them in the cache. For torch's fused
kernels, which need no chunks, adjacent tensors are joined: parameters, gradients and optimizer state are often
consecutive slices of flat buffers, and an element-wise update does not depend on tensor boundaries.
"""

import weakref
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import final

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
        stays_whole = first.nbytes <= bytes_at_once or not first.is_cpu
        if stays_whole or not is_dense(first) or len({tensor.stride() for tensor in row}) > 1:
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


def _flattened(tensor: Tensor) -> Tensor:
    """A view of a dense tensor's elements in memory order."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))


def are_uniform(rows: Sequence[Row]) -> bool:
    """Whether all tensors are contiguous, of one dtype and on one device, so that `alike` is not needed.

    Nearly always true, and called in every step: hence without Python code per tensor, and by counting instead of
    hashing.
    """
    tensors = [*chain.from_iterable(rows)]
    dtypes = [*map(attrgetter("dtype"), tensors)]
    devices = [*map(attrgetter("device"), next(zip(*rows, strict=True)))]
    return (
        all(map(Tensor.is_contiguous, tensors))
        and dtypes.count(dtypes[0]) == len(dtypes)
        and devices.count(devices[0]) == len(devices)
    )


def alike(row: Row) -> Row:
    """The row with all tensors dense, with the first one's dtype and memory order; other tensors are copied.

    A caller that updates the row in place must write the copies back.
    """
    first = row[0] if is_dense(row[0]) else row[0].contiguous()
    model = first.dtype, first.stride()
    others = (
        tensor if (tensor.dtype, tensor.stride()) == model else torch.empty_like(first).copy_(tensor)
        for tensor in row[1:]
    )
    return (first, *others)


def joined(rows: Sequence[Row]) -> list[Row]:
    """The same elements in fewer rows: rows whose tensors are all adjacent in memory become one flat row.

    The rows have one dtype, one device and dense tensors.

    >>> buffers = torch.zeros(3, 10)                    # parameters, gradients and momenta, a flat buffer each
    >>> rows = [tuple(buffer[:4] for buffer in buffers), tuple(buffer[4:] for buffer in buffers)]
    >>> [row[0].numel() for row in joined(rows)]
    [10]
    """
    offsets = [row[0].storage_offset() for row in rows]
    if not any(offsets):
        return list(rows)  # each parameter has its own allocation, so none are adjacent
    return [
        run[0] if len(run) == 1 else tuple(_span(column) for column in zip(*run, strict=True))
        for run in _runs(rows)
    ]


@final
class Joins:
    """`joined`, which remembers its last result where a program keeps its gradients' memory from step to step.

    It keeps gradients that come a second time, and never gradients that a program drops.
    """

    def __init__(self) -> None:
        self._seen: list[weakref.ref[Tensor]] = []
        """The second column of the last rows."""
        self._places: list[int] = []
        self._rows: list[Row] = []

    def __call__(self, rows: Sequence[Row]) -> list[Row]:
        """The rows (param, grad, …), joined where they are adjacent."""
        params, grads, *_ = zip(*rows, strict=True)
        if not any(map(Tensor.storage_offset, params)) or not any(map(Tensor.storage_offset, grads)):
            return list(rows)  # each has its own allocation, so none are adjacent
        places = [*map(Tensor.data_ptr, chain.from_iterable(rows)), *map(Tensor.numel, params)]
        if self._rows and places == self._places:
            return self._rows
        found = joined(rows)
        stays = len(grads) == len(self._seen) and all(
            seen() is grad for seen, grad in zip(self._seen, grads, strict=True)
        )
        self._seen = [*map(weakref.ref, grads)]
        self._places, self._rows = (places, found) if stays else ([], [])
        return found


def zeros_beside(params: Sequence[Tensor]) -> list[Tensor]:
    """Zeros like each parameter; for adjacent parameters they are adjacent too, and can be joined."""
    zeros: dict[int, Tensor] = {}
    for run in _runs([(param,) for param in params if is_dense(param)]):
        if len(run) == 1:
            continue
        buffer = torch.zeros_like(_span([param for (param,) in run]))
        offset = 0
        for (param,) in run:
            zeros[id(param)] = buffer.as_strided(param.shape, param.stride(), offset)
            offset += param.numel()
    return [zeros[id(param)] if id(param) in zeros else torch.zeros_like(param) for param in params]


def _runs(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows in memory order, split where a tensor is not adjacent to its predecessor."""
    runs: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: row[0].data_ptr()):
        if runs and all(map(_follows, runs[-1][-1], row)):
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def _follows(left: Tensor, right: Tensor) -> bool:
    return (
        left.data_ptr() + left.nbytes == right.data_ptr()
        # Separate allocations may be adjacent by chance, but a view cannot span both.
        and left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()
        and left.dtype == right.dtype
    )


def _span(column: Sequence[Tensor]) -> Tensor:
    """One flat view from the first tensor's start to the last one's end."""
    return column[0].detach().as_strided((sum(tensor.numel() for tensor in column),), (1,))
