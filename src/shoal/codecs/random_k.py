"""Random-k: elements at random positions, the same on all workers."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from shoal.codecs.codec import Field, Form, Linear, Payload, generator
from shoal.codecs.largest import count


@dataclass(frozen=True)
class RandomK(Linear):
    """Sends k = ⌈ratio·n⌉ elements at positions that follow from the seed, so that no position travels.

    Positions are common to all workers: values can be summed. Without feedback the values are *scaled* by n / k:
    unbiased, with E‖x − C(x)‖² = (n / k − 1)·‖x‖². With feedback they are not: a contraction with
    E‖x − C(x)‖² = (1 − k / n)·‖x‖². Bytes: k values.

    The elements, rotated at random, are divided into k intervals, and one position is drawn in each: all positions are
    equally likely, none is drawn twice, and nothing of n elements is shuffled.

    Stich, Cordonnier and Jaggi, Sparsified SGD with Memory, 2018; Wangni et al., Gradient Sparsification for
    Communication-Efficient Distributed Optimization, 2018.
    """

    ratio: float
    is_scaled: bool = False

    @property
    def is_unbiased(self) -> bool:
        """If values are scaled."""
        return self.is_scaled

    def fields(self, form: Form) -> tuple[Field, ...]:
        """Values alone."""
        return (Field(form.dtype, count(self.ratio, form.numel)),)

    def warming(self, progress: float) -> Self:
        """From all elements to the ratio, exponentially."""
        return replace(self, ratio=self.ratio**progress)

    def basis(self, proposal: Tensor | None, form: Form, seed: int) -> Tensor:
        """The positions, which all workers draw alike."""
        del proposal
        numel, device = form.numel, form.device
        k = count(self.ratio, numel)
        if k == numel:
            return torch.arange(numel, device=device)
        draw = generator(seed, device)
        edges = torch.arange(k + 1, device=device) * numel // k
        widths = edges.diff()
        # An interval may be one element longer than another: the rotation makes all positions equally likely.
        inside = (torch.rand(k, generator=draw, device=device, dtype=torch.float64) * widths).long()
        start = torch.randint(numel, (1,), generator=draw, device=device)
        return (edges[:-1] + inside + start) % numel

    def express(self, x: Tensor, basis: Tensor | None, workers: int) -> Tensor:
        """The elements at the positions."""
        del workers
        values = x.view(-1)[basis]
        return values.mul_(x.numel() / values.numel()) if self.is_scaled and values.numel() else values

    def reconstruct(self, coordinates: Tensor, basis: Tensor | None, out: Tensor) -> None:
        """The values at the positions, and 0 elsewhere."""
        out.zero_().view(-1)[basis] = coordinates

    def add(self, payload: Payload, out: Tensor, seed: int) -> None:
        """Add the values at the positions."""
        out.view(-1).index_add_(0, self.basis(None, Form.of(out), seed), payload[0])

    def subtract(self, x: Tensor, payload: Payload, seed: int) -> None:
        """Subtract the values at the positions."""
        x.view(-1).index_add_(0, self.basis(None, Form.of(x), seed), payload[0], alpha=-1)
