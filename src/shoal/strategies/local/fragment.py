"""A fragment: a range of the flat parameters that the workers average at once, and the outer step that follows.

::

    parameters    |fc1.weight···················|fc1.bias|fc2.weight······|fc2.bias|
    fragments     |······· 0 ·······|······· 1 ·······|······· 2 ·······|··· 3 ···|

Fragments have equal numbers of elements, wherever parameters begin: each takes the same time on a link.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from shoal.comm.group import Finished, Group, Work
from shoal.strategies.buckets.bucket import Bucket, Region
from shoal.strategies.exchange.exchange import Exchange

Moments = Mapping[str, Mapping[str, Tensor]]
"""The optimizer's moments by parameter and key."""


class Stretch(NamedTuple):
    """Some consecutive elements of a flattened parameter."""

    name: str
    start: int
    end: int

    def of(self, tensor: Tensor) -> Tensor:
        """These elements of a contiguous tensor, as a flat view."""
        return tensor.detach().view(-1)[self.start : self.end]


def cut(params: Mapping[str, Tensor], count: int) -> list[list[Stretch]]:
    """Cut parameters, one after the other, into at most `count` ranges with equal numbers of elements.

    A range has elements of one dtype and device, because they travel in one buffer.

    >>> for stretches in cut({"weight": torch.zeros(2, 3), "bias": torch.zeros(2)}, 2):
    ...     print([tuple(stretch) for stretch in stretches])
    [('weight', 0, 4)]
    [('weight', 4, 6), ('bias', 0, 2)]
    """
    kinds: dict[tuple[torch.dtype, torch.device], dict[str, int]] = {}
    for name, param in params.items():
        kinds.setdefault((param.dtype, param.device), {})[name] = param.numel()
    return [
        stretches
        for numels in kinds.values()
        for index in range(count)
        if (stretches := _stretches(numels, index, count))
    ]


def _stretches(numels: Mapping[str, int], index: int, count: int) -> list[Stretch]:
    """One of `count` equal ranges of parameters of these sizes, one after the other."""
    total = sum(numels.values())
    start, end = total * index // count, total * (index + 1) // count
    found: list[Stretch] = []
    offset = 0
    for name, numel in numels.items():
        first, last = max(start - offset, 0), min(end - offset, numel)
        if first < last:
            found.append(Stretch(name, first, last))
        offset += numel
    return found


@final
class Fragment:
    """A part of the weights, and what averaging needs of it.

    ::

        anchor     θ    the weights after the last averaging, the same on all workers
        momentum   u    the state of the outer step, the same on all workers
        snapshot   θᵢ   this worker's weights when the last averaging began
        bucket          wᵢ·(θ − θᵢ), if moments are averaged wᵢ·mᵢ, and the piggyback: what is exchanged

    Memory: four times its weights, and its moments once if they are averaged.
    """

    def __init__(
        self, params: Mapping[str, Tensor], stretches: Sequence[Stretch], offset: int, num_piggyback: int
    ) -> None:
        self._params, self._stretches, self._num_piggyback = params, stretches, num_piggyback
        self.offset = offset
        """How many steps before those of the first fragment its averagings begin."""
        self.anchor = torch.cat(self._views())
        self.momentum = torch.zeros_like(self.anchor)
        self.snapshot = self.anchor.clone()
        self.num_samples = [0, 0]
        """Samples since the last averaging began: this worker's, and all workers'."""
        self._nothing = self.anchor.new_zeros(num_piggyback)
        self._bucket: Bucket | None = None
        self._moments: list[Tensor] = []
        self.work: Work = Finished()
        """The exchange under way."""

    def weight(self, size: int) -> float:
        """wᵢ: this worker's part of the samples since the last averaging; over the workers, it adds up to 1."""
        mine, all_samples = self.num_samples
        return mine / all_samples if all_samples else 1 / size

    @torch.no_grad()
    def start(self, group: Group, exchange: Exchange, moments: Moments, piggyback: Tensor | None) -> None:
        """Start the exchange of wᵢ·(θ − θᵢ); `moments` are averaged along with it, and a piggyback is summed."""
        of_moments = {
            f"{self._place_of(stretch)[0]}.{key}": stretch.of(tensor)
            for stretch in self._stretches
            for key, tensor in moments.get(stretch.name, {}).items()
        }
        self._moments = list(of_moments.values())
        averaged = self.anchor.numel() + sum(moment.numel() for moment in self._moments)
        if self._bucket is None or self._bucket.gradients.numel() != averaged:
            self._bucket = self._make_bucket(group, of_moments)
        torch.cat(self._views(), out=self.snapshot)
        difference, *parts = self._split(self._bucket.gradients)
        torch.sub(self.anchor, self.snapshot, out=difference)
        for part, moment in zip(parts, self._moments, strict=True):
            part.copy_(moment)
        self._bucket.gradients.mul_(self.weight(group.size))
        if self._bucket.piggyback is not None:
            self._bucket.piggyback.copy_(self._nothing if piggyback is None else piggyback.view(-1))
        self.work = exchange(group, self._bucket)

    def wait(self) -> None:
        """Wait for the exchange: the bucket then holds the means."""
        self.work.wait()
        self.work = Finished()

    @torch.no_grad()
    def outer_step(self, lr: float, momentum: float) -> None:
        """Move the anchor by the mean difference, with Nesterov momentum, and the weights by as much.

        ::

            Δ ← Σ wᵢ·(θ − θᵢ)        the outer gradient
            u ← μ·u + Δ
            θ ← θ − η·(Δ + μ·u)
            weights ← θ + (weights − θᵢ)     θᵢ as it was sent: what the worker has learnt since is kept

        With η = 1 and μ = 0 the anchor becomes Σ wᵢ·θᵢ. Without steps since then, weights − θᵢ is exactly 0, so all
        workers have the same bits.
        """
        self.wait()
        difference = self._means()
        self.momentum.mul_(momentum).add_(difference)
        self.anchor.sub_(difference, alpha=lr).sub_(self.momentum, alpha=lr * momentum)
        for view, old, new in self._aligned(self.snapshot, self.anchor):
            view.sub_(old).add_(new)

    @torch.no_grad()
    def become_mean(self) -> None:
        """Set the weights to Σ wᵢ·θᵢ, without an outer step."""
        self.wait()
        for view, anchor, difference in self._aligned(self.anchor, self._means()):
            torch.sub(anchor, difference, out=view)

    @property
    def piggyback(self) -> Tensor | None:
        """The sum of what the workers have sent with the weights, once the exchange has ended."""
        return None if self._bucket is None else self._bucket.piggyback

    @property
    def mean_difference(self) -> Tensor:
        """Δ, once the exchange has ended and until the outer step."""
        assert self._bucket is not None
        return self._split(self._bucket.gradients)[0]

    def state(self, is_under_way: bool) -> dict[str, Tensor]:
        """The tensors that determine what follows; more of them while an average waits for its outer step."""
        state = {"anchor": self.anchor, "momentum": self.momentum}
        if is_under_way:
            state |= {"snapshot": self.snapshot, "difference": self.mean_difference}
        return state

    def prepare(self, group: Group) -> None:
        """Have memory for a Δ that an earlier process received. A collective."""
        self._bucket = self._make_bucket(group, {})

    def restart(self) -> None:
        """Take the present weights as the anchor."""
        torch.cat(self._views(), out=self.anchor)
        self.num_samples = [0, 0]

    def by_stretch(self, flat: Tensor) -> list[tuple[Stretch, Tensor]]:
        """The parts of a flat tensor of this fragment, each with the elements that it belongs to."""
        parts = flat.split([stretch.end - stretch.start for stretch in self._stretches])
        return list(zip(self._stretches, parts, strict=True))

    def _means(self) -> Tensor:
        """Copy the mean moments to their places; returns the mean difference."""
        assert self._bucket is not None
        difference, *parts = self._split(self._bucket.gradients)
        for part, moment in zip(parts, self._moments, strict=True):
            moment.copy_(part)
        return difference

    def _views(self) -> list[Tensor]:
        return [stretch.of(self._params[stretch.name]) for stretch in self._stretches]

    def _aligned(self, *flats: Tensor) -> list[tuple[Tensor, ...]]:
        """The weights of each stretch, beside its part of every flat tensor."""
        parts = ([part for _, part in self.by_stretch(flat)] for flat in flats)
        return list(zip(self._views(), *parts, strict=True))

    def _split(self, flat: Tensor) -> list[Tensor]:
        """The difference, and each moment, in the memory of the bucket."""
        return list(flat.split([self.anchor.numel(), *(moment.numel() for moment in self._moments)]))

    def _make_bucket(self, group: Group, moments: Mapping[str, Tensor]) -> Bucket:
        shapes = dict(map(self._place_of, self._stretches))
        shapes |= {name: (moment.numel(),) for name, moment in moments.items()}
        regions: dict[str, Region] = {}
        offset = 0
        for name, shape in shapes.items():
            regions[name] = Region(offset, shape, torch.empty(shape, device="meta").stride())
            offset += math.prod(shape)
        flat = group.empty(offset + self._num_piggyback, self.anchor.dtype, self.anchor.device)
        return Bucket(flat, regions, self._num_piggyback)

    def _place_of(self, stretch: Stretch) -> tuple[str, tuple[int, ...]]:
        """The name and the shape of a stretch in a bucket: the parameter's, where it is all of it."""
        name, start, end = stretch
        param = self._params[name]
        if end - start == param.numel():
            return name, tuple(param.shape)
        return f"{name}[{start}:{end}]", (end - start,)
