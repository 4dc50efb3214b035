"""Thresholds: the elements whose magnitude reaches one, fixed or a moving average."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from shoal.codecs.codec import Field, Form, Payload
from shoal.codecs.largest import count, reaching, sampled_threshold
from shoal.codecs.top_k import Sparse


@dataclass(frozen=True)
class Threshold(Sparse):
    """Sends the elements with |x| ≥ threshold, at most ⌈ratio·n⌉ of them: of more, the largest.

    The absolute error of each element that is not sent is below the threshold unless the payload is full. Biased; needs
    feedback: an element that is small in every step is sent when its sum has reached the threshold. Bytes as for top-k
    of the same ratio, because payloads have one size; unused positions carry 0.

    Strom, Scalable Distributed DNN Training Using Commodity GPU Cloud Computing, 2015; Dutta et al., On the Discrepancy
    between the Theoretical Analysis and Practical Implementations of Compressed Communication, 2020.
    """

    threshold: float
    ratio: float

    def fields(self, form: Form) -> tuple[Field, ...]:
        """Values and positions."""
        k = count(self.ratio, form.numel)
        return Field(form.dtype, k), Field(torch.int32, k)

    def warming(self, progress: float) -> Self:
        """From all elements to the ratio, exponentially; the threshold rises from 0."""
        return replace(self, threshold=self.threshold * progress, ratio=self.ratio**progress)

    def encode(self, x: Tensor, seed: int, memory: Tensor | None = None) -> Payload:
        """The elements that reach the threshold, and their positions."""
        del seed, memory
        return _payload(x.view(-1), self.threshold, count(self.ratio, x.numel()))


@dataclass(frozen=True)
class AverageThreshold(Sparse):
    """Sends the elements with |x| ≥ τ, where τ is an exponential moving average; at most ⌈ratio·n⌉ elements.

    In step t, qₜ is the magnitude that a fraction `ratio` of the elements reaches, estimated from a sample, and
    τₜ = decay·τₜ₋₁ + (1 − decay)·qₜ, with τ₀ = q₀. So a step whose gradients are smaller than usual sends fewer
    elements, and leaves the rest to a step in which they matter; no element is sorted unless too many reach τ. Biased;
    needs feedback. Bytes as for top-k of the same ratio. `decay` = 0 sends about what top-k does.

    The threshold by sampling: Lin et al., Deep Gradient Compression, 2018.
    """

    MEMORY: ClassVar[str] = "4 per parameter"
    ratio: float
    decay: float

    def fields(self, form: Form) -> tuple[Field, ...]:
        """Values and positions."""
        k = count(self.ratio, form.numel)
        return Field(form.dtype, k), Field(torch.int32, k)

    def warming(self, progress: float) -> Self:
        """From all elements to the ratio, exponentially."""
        return replace(self, ratio=self.ratio**progress)

    def new_memory(self, form: Form, seed: int) -> Tensor:
        """No threshold yet: a negative number."""
        del seed
        return torch.full((1,), -1.0, dtype=form.dtype, device=form.device)

    def encode(self, x: Tensor, seed: int, memory: Tensor | None = None) -> Payload:
        """The elements that reach the average, and their positions."""
        k = count(self.ratio, x.numel())
        return _payload(x.view(-1), self._average(x, seed, memory), k)

    def remember(self, x: Tensor, payload: Payload, memory: Tensor | None, seed: int) -> Tensor:
        """The average after this step."""
        del payload
        return self._average(x, seed, memory)

    def _average(self, x: Tensor, seed: int, memory: Tensor | None) -> Tensor:
        if not x.numel() or self.ratio == 1.0:
            return x.new_zeros(1)  # all elements reach it
        now = sampled_threshold(x.view(-1), self.ratio, seed).view(1)
        if memory is None:
            return now
        return torch.where(memory < 0, now, self.decay * memory + (1 - self.decay) * now)


def _payload(flat: Tensor, threshold: float | Tensor, most: int) -> Payload:
    """The elements that reach a threshold, and their positions: of more than `most` the largest, else padded with 0."""
    positions = reaching(flat, threshold)
    if positions.numel() > most:
        positions = positions[flat[positions].abs_().topk(most, sorted=False).indices]
    unused = most - positions.numel()
    values = torch.cat([flat[positions], flat.new_zeros(unused)])
    return values, torch.cat([positions, positions.new_zeros(unused)]).to(torch.int32)
