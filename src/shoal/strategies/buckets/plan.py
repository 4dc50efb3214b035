"""Plan buckets: which parameters share one, and where in memory it is.

::

    order in which gradients become final   fc2.bias  fc2.weight  fc1.bias  fc1.weight  …
                                            └──── bucket 0 ────┘  └───── bucket 1 ─────┘
    memory of one dtype and device          |fc2.bias|fc2.weight··|fc1.bias|fc1.weight··|

A bucket is sent when its last gradient is final, so it holds gradients that become final one after the other. A small
first bucket is sent early; large ones after it need few calls.
"""

import math
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


class Size(NamedTuple):
    """What planning needs to know about a parameter."""

    numel: int
    kind: Kind


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
    sizes: Sequence[Size], order: Sequence[int], first_bytes: float, most_bytes: float
) -> list[PlannedBucket]:
    """Cut the parameters, in the order in which their gradients become final, into buckets.

    A bucket is full when it holds `most_bytes` or more, the first one of a kind with `first_bytes` or more. The buckets
    are in the order in which they become full. All workers make the same plan, so all send in the same order.

    >>> floats = Kind(torch.float32, torch.device("cpu"))
    >>> sizes = [Size(numel, floats) for numel in (100, 10, 200, 20)]
    >>> [(bucket.start, bucket.params) for bucket in plan(sizes, [3, 2, 1, 0], first_bytes=64, most_bytes=800)]
    [(0, (3,)), (20, (2,)), (220, (1, 0))]
    """
    done: list[PlannedBucket] = []
    filling: dict[Kind, list[int]] = {}
    starts: dict[Kind, int] = {}

    def close(kind: Kind) -> None:
        params = filling.pop(kind)
        numel = sum(sizes[param].numel for param in params)
        start = starts.get(kind, 0)
        done.append(PlannedBucket(kind, start, numel, tuple(params)))
        starts[kind] = start + numel

    for param in order:
        kind = sizes[param].kind
        inside = filling.setdefault(kind, [])
        inside.append(param)
        limit = most_bytes if kind in starts else first_bytes
        if sum(sizes[one].numel for one in inside) * kind.dtype.itemsize >= limit:
            close(kind)
    for kind in list(filling):
        close(kind)
    # A bucket that the end of the parameters closed becomes full with its own last gradient.
    position = {param: place for place, param in enumerate(order)}
    return sorted(done, key=lambda bucket: position[bucket.params[-1]])


class Memory:
    """The memory of all buckets: one buffer for each kind. Constructing it is a collective.

    Every plan needs the same amount: another plan is another cut of the same memory. `num_piggyback` elements after the
    last bucket are for other numbers. There are none where gradients are of several kinds, since the plan then decides
    which kind is last, nor in half precision, which is too coarse for them.
    """

    def __init__(self, group: Group, tensors: Mapping[str, Tensor], num_piggyback: int = 0) -> None:
        self._names, self._tensors = list(tensors), list(tensors.values())
        self._sizes = [Size(tensor.numel(), Kind(tensor.dtype, tensor.device)) for tensor in self._tensors]
        numels: dict[Kind, int] = {}
        for numel, kind in self._sizes:
            numels[kind] = numels.get(kind, 0) + numel
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
        planned = plan(self._sizes, order or range(len(self._sizes)), first_bytes, most_bytes)
        return [self._bucket(one, index, len(planned)) for index, one in enumerate(planned)]

    def _bucket(self, planned: PlannedBucket, index: int, count: int) -> Bucket:
        is_last = index == count - 1
        num_piggyback = self._num_piggyback if is_last else 0
        end = planned.start + planned.numel + num_piggyback
        regions: dict[str, Region] = {}
        offset = 0
        for param in planned.params:
            like = self._tensors[param]
            # An update reads parameter and gradient together: fastest if both have one order (channels_last, say).
            stride = like.stride() if is_dense(like) else torch.empty(like.shape, device="meta").stride()
            regions[self._names[param]] = Region(offset, like.shape, stride)
            offset += like.numel()
        flat = self._buffers[planned.kind][planned.start : end]
        return Bucket(flat, regions, num_piggyback, index, is_last)
