"""Plan buckets: which parameters share one, and where in memory it is.

::

    order in which gradients become final   fc2.bias  fc2.weight  fc1.bias  fc1.weight  …
                                            └──── bucket 0 ────┘  └───── bucket 1 ─────┘
    memory of one dtype and device          |fc2.bias|fc2.weight··|fc1.bias|fc1.weight··|

A bucket is sent when its last gradient is final, so it holds gradients that become final one after the other. A small
first bucket is sent early; large ones after it need few calls.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.optim.rows import is_dense
from shoal.strategies.buckets.bucket import Bucket, Region

MIB = 2**20


class Kind(NamedTuple):
    """What the gradients in one buffer have in common."""

    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: Tensor) -> "Kind":
        """The kind of a tensor."""
        return cls(tensor.dtype, tensor.device)


@dataclass(frozen=True)
class PlannedBucket:
    """A range of one kind's memory, and the parameters whose gradients it holds."""

    kind: Kind
    start: int
    """Its first element in the memory of its kind."""
    numel: int
    params: tuple[int, ...]
    """The parameters, by number, one after the other from `start` on."""


def plan(
    tensors: Sequence[Tensor], order: Sequence[int], first_bytes: float, most_bytes: float
) -> list[PlannedBucket]:
    """Cut the parameters, in the order in which their gradients become final, into buckets.

    A bucket is full when it holds `most_bytes` or more, the first one of a kind with `first_bytes` or more. The buckets
    are in the order in which they become full. All workers make the same plan, so all send in the same order.

    >>> params = [torch.empty(numel) for numel in (100, 10, 200, 20)]
    >>> [(bucket.start, bucket.params) for bucket in plan(params, [3, 2, 1, 0], first_bytes=64, most_bytes=800)]
    [(0, (3,)), (20, (2,)), (220, (1, 0))]
    """
    done: list[PlannedBucket] = []
    filling: dict[Kind, list[int]] = {}
    starts: dict[Kind, int] = {}

    def close(kind: Kind) -> None:
        params = filling.pop(kind)
        numel = sum(tensors[param].numel() for param in params)
        start = starts.get(kind, 0)
        done.append(PlannedBucket(kind, start, numel, tuple(params)))
        starts[kind] = start + numel

    for param in order:
        kind = Kind.of(tensors[param])
        inside = filling.setdefault(kind, [])
        inside.append(param)
        limit = most_bytes if kind in starts else first_bytes
        if sum(tensors[one].nbytes for one in inside) >= limit:
            close(kind)
    for kind in list(filling):
        close(kind)
    # A bucket that the end of the parameters closed becomes full with its own last gradient.
    position = {param: place for place, param in enumerate(order)}
    return sorted(done, key=lambda bucket: position[bucket.params[-1]])


def regions_of(tensors: Mapping[str, Tensor]) -> dict[str, Region]:
    """Where each tensor's gradient is in a bucket: one after the other."""
    regions: dict[str, Region] = {}
    offset = 0
    for name, like in tensors.items():
        # An update reads parameter and gradient together: fastest if both have one order (channels_last, say).
        stride = like.stride() if is_dense(like) else torch.empty(like.shape, device="meta").stride()
        regions[name] = Region(offset, like.shape, stride)
        offset += like.numel()
    return regions


class Memory:
    """The memory of all buckets: one buffer for each kind. Constructing it is a collective.

    Every plan needs the same amount: another plan is another cut of the same memory. `num_piggyback` elements after the
    last bucket are for other numbers. There are none where gradients are of several kinds, since the plan then decides
    which kind is last, nor in half precision, which is too coarse for them.
    """

    def __init__(self, group: Group, tensors: Mapping[str, Tensor], num_piggyback: int = 0) -> None:
        self._names, self._tensors = list(tensors), list(tensors.values())
        numels: Counter[Kind] = Counter()
        for tensor in self._tensors:
            numels[Kind.of(tensor)] += tensor.numel()
        fits = len(numels) == 1 and next(iter(numels)).dtype.itemsize >= 4
        self._num_piggyback = num_piggyback if fits else 0
        self._buffers = {
            kind: group.empty(numel + self._num_piggyback, *kind) for kind, numel in numels.items()
        }

    def cut(
        self,
        order: Sequence[int] | None = None,
        first_bytes: float = math.inf,
        most_bytes: float = math.inf,
    ) -> list[Bucket]:
        """The buckets of a plan; without limits, one for each kind."""
        buckets: list[Bucket] = []
        planned = plan(self._tensors, order or range(len(self._tensors)), first_bytes, most_bytes)
        for index, one in enumerate(planned, start=1):
            is_last = index == len(planned)
            num_piggyback = self._num_piggyback if is_last else 0
            regions = regions_of({self._names[param]: self._tensors[param] for param in one.params})
            flat = self._buffers[one.kind][one.start : one.start + one.numel + num_piggyback]
            buckets.append(Bucket(flat, regions, num_piggyback, index - 1, is_last))
        return buckets
