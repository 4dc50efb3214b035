"""Codecs that send a few elements: the largest, all that reach a threshold, or random ones."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from shoal.codecs.codec import Additive, Field, Form, Linear, Payload, generator
from shoal.codecs.rounding import CHUNK, chunks

SMALL = 1 << 16
"""Up to this many elements, torch.topk alone is fast."""
HITS = 1000
"""Expected number of sampled elements among the largest: their number is then known to 3 %."""
MARGIN = 1.2
"""Candidates per selected element: six standard deviations above what is needed."""


def count(ratio: float, numel: int) -> int:
    """How many elements a ratio selects: at least one, unless there are none.

    >>> count(0.01, 1000), count(0.01, 10), count(1.0, 7), count(0.5, 0)
    (10, 1, 7, 0)
    """
    # The product may exceed a whole number by a rounding error.
    return min(numel, max(1, math.ceil(ratio * numel - 1e-9)))


def largest(x: Tensor, k: int, seed: int) -> Tensor:
    """The positions of the k elements of largest magnitude, in no particular order.

    On large gradients: phase 1, a sample gives a threshold that about 1.2·k elements reach. Phase 2, one pass collects
    these candidates. Phase 3, the k largest of them. If fewer than k reach the threshold, all elements are sorted, so
    the result is always exact.
    """
    numel = x.numel()
    if k >= numel:
        return torch.arange(numel, device=x.device)
    if numel > SMALL and MARGIN * k < numel / 4:
        candidates = reaching(x, sampled_threshold(x, MARGIN * k / numel, seed))
        if candidates.numel() >= k:
            return candidates[x[candidates].abs_().topk(k, sorted=False).indices]
    return x.abs().topk(k, sorted=False).indices


def sampled_threshold(x: Tensor, ratio: float, seed: int) -> Tensor:
    """A magnitude that about this fraction of the elements reaches, estimated from a sample."""
    size = min(x.numel(), math.ceil(HITS / ratio))
    if size < x.numel():
        x = x[torch.randint(x.numel(), (size,), generator=generator(seed, x.device), device=x.device)]
    return x.abs().topk(count(ratio, size), sorted=False).values.amin()


def reaching(x: Tensor, threshold: Tensor | float) -> Tensor:
    """The positions of the elements whose magnitude reaches a threshold, ascending.

    On a CPU, chunk by chunk: no temporary is as large as the gradient.
    """
    if not x.is_cpu:
        return (x.abs() >= threshold).nonzero().view(-1)
    found = [np.empty(0, dtype=np.int64)]
    magnitudes, reaches = x.new_empty(min(CHUNK, x.numel())), torch.empty(CHUNK, dtype=torch.bool)
    for start, chunk in chunks(x):
        size = chunk.numel()
        torch.ge(torch.abs(chunk, out=magnitudes[:size]), threshold, out=reaches[:size])
        # Numpy finds the few that are true several times as fast as torch does.
        found.append(reaches[:size].numpy().nonzero()[0] + start)
    return torch.from_numpy(np.concatenate(found))


@dataclass(frozen=True)
class Sparse(Additive):
    """Sends k = ⌈ratio·n⌉ values and their positions; positions that are not used have the value 0."""

    ratio: float

    def fields(self, form: Form) -> tuple[Field, ...]:
        """Values and positions."""
        k = count(self.ratio, form.numel)
        return Field(form.dtype, k), Field(torch.int32, k)

    def warming(self, progress: float) -> Self:
        """From all elements to the ratio, exponentially."""
        return replace(self, ratio=self.ratio**progress)

    def add(self, payload: Payload, out: Tensor, seed: int) -> None:
        """Add the values at their positions."""
        values, positions = payload
        out.view(-1).index_add_(0, positions, values)


@dataclass(frozen=True)
class TopK(Sparse):
    """Sends the k = ⌈ratio·n⌉ elements of largest magnitude, each with its position.

    A contraction with δ = k/n: the elements that remain are the n − k smallest, so ‖x − C(x)‖² ≤ (1 − k/n)·‖x‖².
    Biased; needs feedback. Bytes: k·(value + 4 for the position).

    Aji and Heafield, Sparse Communication for Distributed Gradient Descent, 2017; Stich, Cordonnier and Jaggi,
    Sparsified SGD with Memory, 2018.
    """

    def encode(self, x: Tensor, seed: int, memory: Tensor | None = None) -> Payload:
        """The largest elements and their positions."""
        flat = x.view(-1)
        positions = largest(flat, count(self.ratio, x.numel()), seed)
        return flat[positions], positions.to(torch.int32)


@dataclass(frozen=True)
class Dgc(TopK):
    """Top-k with feedback, whose residual accumulates the momentum u and not the gradient g::

        g ← g·min(1, clip / (√W·‖g‖))      local clipping (clip = 0: none), for each parameter
        u ← momentum·u + g                 momentum correction
        v ← v + u                          v is the residual
        send the k largest of v; where sent, v ← 0 and u ← 0 (momentum factor masking)

    With plain feedback, an element that waits m steps is sent as the sum of its gradients, and its momentum begins only
    then. Here it is sent as the sum of its velocities, as if it had been updated in every step. Use it with an
    optimizer without momentum. Two tensors of the gradient's size are kept: u and the residual. Bytes as for top-k.

    Lin, Han, Mao, Wang and Dally, Deep Gradient Compression: Reducing the Communication Bandwidth for Distributed
    Training, 2018. Its warm-up lowers the ratio exponentially, as `--exchange.warmup` does.
    """

    MEMORY: ClassVar[str] = "4Ψ"
    momentum: float
    clip: float

    def new_memory(self, form: Form, seed: int) -> Tensor:
        """The velocity u."""
        return torch.zeros(form.shape, dtype=form.dtype, device=form.device)

    def correct(self, gradient: Tensor, memory: Tensor | None, workers: int) -> Tensor:
        """Clip the gradient and make it the velocity."""
        if self.clip:
            most = self.clip / math.sqrt(workers)
            gradient.mul_((most / torch.linalg.vector_norm(gradient)).clamp(max=1.0))
        if memory is not None:
            gradient.add_(memory, alpha=self.momentum)
        return gradient.clone()

    def remember(self, x: Tensor, payload: Payload, memory: Tensor | None, seed: int) -> Tensor | None:
        """The velocity, 0 where it was sent."""
        if memory is not None:
            memory.view(-1)[payload[1].long()] = 0
        return memory


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

    def warming(self, progress: float) -> Self:
        """From all elements to the ratio, exponentially; the threshold rises from 0."""
        return replace(self, threshold=self.threshold * progress, ratio=self.ratio**progress)

    def encode(self, x: Tensor, seed: int, memory: Tensor | None = None) -> Payload:
        """The elements that reach the threshold, and their positions."""
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
    decay: float

    def new_memory(self, form: Form, seed: int) -> Tensor:
        """No threshold yet: a negative number."""
        return torch.full((1,), -1.0, dtype=form.dtype, device=form.device)

    def encode(self, x: Tensor, seed: int, memory: Tensor | None = None) -> Payload:
        """The elements that reach the average, and their positions."""
        k = count(self.ratio, x.numel())
        return _payload(x.view(-1), self._average(x, seed, memory), k)

    def remember(self, x: Tensor, payload: Payload, memory: Tensor | None, seed: int) -> Tensor:
        """The average after this step."""
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
