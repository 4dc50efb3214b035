"""Exchange only the gradients of weights that are not pruned."""

from collections.abc import Mapping
from typing import NamedTuple, final

import torch
from torch import Tensor

from shoal.comm.group import Group, Work
from shoal.prune.masks import WeightMasks
from shoal.strategies.buckets.bucket import Bucket, Region
from shoal.strategies.exchange.exchange import Exchange, Then


class _Packing(NamedTuple):
    """How a bucket is packed while the masks stay the same."""

    version: int
    elements: Tensor
    """The elements of the bucket that are sent."""
    regions: Mapping[str, Region]
    """Where the elements of each parameter are in the packed bucket."""


@final
class KeptOnly(Exchange):
    """Packs the kept elements of a bucket, exchanges these by another exchange, and unpacks the aggregate.

    ::

        bucket   |a·b··c|d·e|piggyback|      · pruned
        sent     |abc|de|piggyback|

    All workers have the same masks, so no indices are sent: the bytes fall by the fraction that is pruned. Pruned
    elements of the aggregate are zero. Until the first pruning, buckets are exchanged as they are.

    Costs two passes over the kept elements and, when masks change, one over the bucket.
    """

    def __init__(self, inner: Exchange, masks: WeightMasks) -> None:
        self._inner, self._masks = inner, masks
        self.is_sum = inner.is_sum
        self._packings: dict[str, _Packing] = {}

    @property
    def tolerates(self) -> int:
        """What the inner exchange tolerates."""
        return self._inner.tolerates

    def __call__(self, group: Group, bucket: Bucket) -> Work:
        """Pack, and start the inner exchange."""
        if not self._masks.version:
            return self._inner(group, bucket)
        packing = self._packing(bucket)
        num_piggyback = 0 if bucket.piggyback is None else bucket.piggyback.numel()
        sent = Bucket(
            bucket.flat[packing.elements], packing.regions, num_piggyback, bucket.index, bucket.is_last
        )

        def unpack() -> None:
            bucket.flat.zero_()
            bucket.flat[packing.elements] = sent.flat

        return Then([self._inner(group, sent)], unpack)

    def _packing(self, bucket: Bucket) -> _Packing:
        packing = self._packings.get(bucket.key)
        if packing is not None and packing.version == self._masks.version:
            return packing
        kept = torch.ones_like(bucket.flat, dtype=torch.bool)
        regions: dict[str, Region] = {}
        offset = 0
        for name, view in zip(bucket.names, bucket.split(kept), strict=True):
            if name in self._masks.kept:
                view.copy_(self._masks.kept[name])
            numel = int(view.sum())
            regions[name] = Region(offset, (numel,), (1,))
            offset += numel
        packing = _Packing(self._masks.version, kept.nonzero().view(-1), regions)
        self._packings[bucket.key] = packing
        return packing

    def pieces(self) -> dict[str, Tensor]:
        """The state of the inner exchange."""
        return self._inner.pieces()

    def load(self, pieces: Mapping[str, Tensor]) -> None:
        """Restore the state of the inner exchange."""
        self._inner.load(pieces)
