"""Buckets: the gradients of many parameters in a few flat buffers. Which lies where is decided here, as pure data.

::

    order in which gradients become final   fc2.bias  fc2.weight  fc1.bias  fc1.weight  …
                                            └──── bucket 0 ────┘  └───── bucket 1 ─────┘
    memory of one dtype and device          |fc2.bias|fc2.weight··|fc1.bias|fc1.weight··|

A bucket is exchanged when its last gradient has come, so it holds what comes one after the other. A small first bucket
starts early, large ones after it move with few calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.optim.chunks import is_dense

MIB = 2**20


class Kind(NamedTuple):
    """What the gradients of one buffer have in common."""

    dtype: torch.dtype
    device: torch.device


class Size(NamedTuple):
    """What planning needs to know of a parameter."""

    numel: int
    kind: Kind


@dataclass(frozen=True)
class Bucket:
    """A stretch of one kind's memory, and whose gradients lie there."""

    kind: Kind
    start: int
    """Its first element in the memory of its kind."""
    numel: int
    params: tuple[int, ...]
    """The parameters, by number, one after the other from `start` on."""


def sizes_of(params: Sequence[Tensor]) -> list[Size]:
    """What planning needs to know of these parameters."""
    return [Size(param.numel(), Kind(param.dtype, param.device)) for param in params]


def plan(sizes: Sequence[Size], order: Sequence[int], first_bytes: int, most_bytes: int) -> list[Bucket]:
    """Cut the parameters, in the order in which their gradients become final, into buckets.

    A bucket is full when it holds `most_bytes` or more, the first one of a kind with `first_bytes` or more. They come
    in the order in which they will be full: so all workers, who plan alike, also exchange alike.

    >>> floats = Kind(torch.float32, torch.device("cpu"))
    >>> sizes = [Size(numel, floats) for numel in (100, 10, 200, 20)]
    >>> [(bucket.start, bucket.params) for bucket in plan(sizes, [3, 2, 1, 0], first_bytes=64, most_bytes=800)]
    [(0, (3,)), (20, (2,)), (220, (1, 0))]
    """
    done: list[Bucket] = []
    filling: dict[Kind, list[int]] = {}
    starts: dict[Kind, int] = {}

    def close(kind: Kind) -> None:
        params = filling.pop(kind)
        numel = sum(sizes[param].numel for param in params)
        start = starts.get(kind, 0)
        done.append(Bucket(kind, start, numel, tuple(params)))
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
    # Those that were closed at the end, because nothing more came, are full when their own last gradient is there.
    position = {param: place for place, param in enumerate(order)}
    return sorted(done, key=lambda bucket: position[bucket.params[-1]])


class Memory:
    """The memory that buckets are cut from: one buffer for each kind. Making it is a collective.

    However the buckets are planned, they need as much: another plan is another cut of the same memory. Behind the last
    gradient of each kind there are `spare` elements more.
    """

    def __init__(self, group: Group, sizes: Sequence[Size], spare: int = 0) -> None:
        numels: dict[Kind, int] = {}
        for numel, kind in sizes:
            numels[kind] = numels.get(kind, 0) + numel
        self._buffers = {kind: group.empty(numel + spare, *kind) for kind, numel in numels.items()}

    def flat(self, bucket: Bucket, spare: int = 0) -> Tensor:
        """A bucket's memory, and so many elements behind it."""
        return self._buffers[bucket.kind][bucket.start : bucket.start + bucket.numel + spare]

    def views(self, bucket: Bucket, params: Sequence[Tensor]) -> list[Tensor]:
        """The place of each of its parameters' gradients, in the parameter's shape and order of elements."""
        flat, views = self.flat(bucket), list[Tensor]()
        offset = 0
        for param in bucket.params:
            like = params[param]
            view = flat[offset : offset + like.numel()]
            # An update walks parameter and gradient together: they should lie alike (channels_last, say).
            views.append(
                view.as_strided(like.shape, like.stride()) if is_dense(like) else view.view(like.shape)
            )
            offset += like.numel()
        return views
