"""A bucket: the gradients of some parameters, one after the other in flat memory, under a key that names them."""

import hashlib
import math
from collections.abc import Mapping
from typing import NamedTuple, Self, final

from torch import Tensor


class Region(NamedTuple):
    """Where one parameter's gradient is in a bucket."""

    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@final
class Bucket:
    """What an exchange makes the aggregate of all workers.

    ::

        flat        |fc2.bias|fc2.weight······|piggyback|     what is exchanged
        gradients   |fc2.bias|fc2.weight······|
        views       |fc2.bias|                                one per parameter, in the parameter's shape
                             |fc2.weight······|

    The *key* follows from the parameters and their order alone: it is the same on every worker, in every run, and for
    a bucket whose parameters another plan leaves together. Another plan that puts other parameters in a bucket gives it
    another key, so that state kept under a key never meets the gradients of other parameters. State that must not be
    lost then (error feedback) belongs to the parameters: see `exchange.ParameterState`.

    >>> import torch
    >>> bucket = Bucket.of("fc.weight", torch.arange(4.0).view(2, 2))
    >>> bucket.key, bucket.flat, bucket.views[0].shape
    ('fc.weight', tensor([0., 1., 2., 3.]), torch.Size([2, 2]))
    """

    __slots__ = ("_regions", "flat", "gradients", "index", "is_last", "key", "names", "piggyback")

    def __init__(
        self,
        flat: Tensor,
        regions: Mapping[str, Region],
        num_piggyback: int = 0,
        index: int = 0,
        is_last: bool = True,
    ) -> None:
        self._regions = tuple(regions.values())
        self.names = tuple(regions)
        self.key = _key(self.names)
        self.flat = flat
        """What is exchanged: the gradients, and in the last bucket the piggyback."""
        self.gradients = flat[:-num_piggyback] if num_piggyback else flat
        self.piggyback = flat[-num_piggyback:] if num_piggyback else None
        """Numbers of another kind that are summed together with the gradients."""
        self.index, self.is_last = index, is_last
        """Its place in the order in which the buckets of one backward pass are sent."""

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> Self:
        """One contiguous tensor as a bucket of its own."""
        return cls(tensor.view(-1), {name: Region(0, tensor.shape, tensor.stride())})

    def with_memory(self, flat: Tensor) -> "Bucket":
        """The same parameters in other memory, which holds nothing but their gradients."""
        return Bucket(flat, dict(zip(self.names, self._regions, strict=True)), 0, self.index, self.is_last)

    @property
    def views(self) -> list[Tensor]:
        """The gradients, each in its parameter's shape."""
        return self.split(self.gradients)

    def split(self, flat: Tensor) -> list[Tensor]:
        """Views of another flat tensor of this bucket's layout, one per parameter, in the parameter's shape."""
        start = flat.storage_offset()
        return [flat.as_strided(shape, stride, start + offset) for offset, shape, stride in self._regions]

    @property
    def extents(self) -> list[tuple[slice, tuple[int, ...]]]:
        """For each parameter, where its gradient is in `gradients`, and its shape in the order of memory."""
        return [
            (
                slice(offset, offset + math.prod(shape)),
                tuple(shape[dim] for dim in sorted(range(len(shape)), key=lambda dim: -stride[dim])),
            )
            for offset, shape, stride in self._regions
        ]


def _key(names: tuple[str, ...]) -> str:
    """A parameter's name; of several, the first one's and a digest of all.

    >>> _key(("fc.weight",)), _key(("fc.weight", "fc.bias"))
    ('fc.weight', 'fc.weight+1.d4999d43')
    """
    if len(names) <= 1:
        return "".join(names)
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
    return f"{names[0]}+{len(names) - 1}.{digest[:8]}"
