"""Top-k: the elements of largest magnitude."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from shoal.codecs.codec import Additive, Field, Form, Payload
from shoal.codecs.largest import count, largest


class Sparse(Additive):
    """A payload of values and their positions; positions that are not used have the value 0."""

    def add(self, payload: Payload, out: Tensor, seed: int) -> None:
        """Add the values at their positions."""
        del seed
        values, positions = payload
        out.view(-1).index_add_(0, positions, values)

    def subtract(self, x: Tensor, payload: Payload, seed: int) -> None:
        """Subtract the values at their positions: exactly 0 remains there."""
        del seed
        values, positions = payload
        x.view(-1).index_add_(0, positions, values, alpha=-1)


@dataclass(frozen=True)
class TopK(Sparse):
    """Sends the k = ⌈ratio·n⌉ elements of largest magnitude, each with its position.

    A contraction with δ = k/n: the elements that remain are the n − k smallest, so ‖x − C(x)‖² ≤ (1 − k/n)·‖x‖².
    Biased; needs feedback. Bytes: k·(value + 4 for the position).

    Aji and Heafield, Sparse Communication for Distributed Gradient Descent, 2017; Stich, Cordonnier and Jaggi,
    Sparsified SGD with Memory, 2018.
    """

    ratio: float

    def fields(self, form: Form) -> tuple[Field, ...]:
        """Values and positions."""
        k = count(self.ratio, form.numel)
        return Field(form.dtype, k), Field(torch.int32, k)

    def warming(self, progress: float) -> Self:
        """From all elements to the ratio, exponentially."""
        return replace(self, ratio=self.ratio**progress)

    def encode(self, x: Tensor, seed: int, memory: Tensor | None = None) -> Payload:
        """The largest elements and their positions."""
        del memory
        flat = x.view(-1)
        positions = largest(flat, count(self.ratio, x.numel()), seed)
        return flat[positions], positions.to(torch.int32)
