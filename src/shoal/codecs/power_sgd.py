"""PowerSGD: each matrix as the product of two thin ones."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from shoal.codecs.codec import Codec, Dense, Field, Form, Linear, Payload, generator


@dataclass(frozen=True)
class PowerSgd(Linear):
    """One step of subspace iteration on the sum M = Σ Mᵢ of the workers' n × m matrices, from the last step's Q::

        P ← Σ Mᵢ·Q          n × r, all-reduce
        P ← orthonormal basis of P's columns
        Q ← Σ Mᵢᵀ·P         m × r, all-reduce; the next step begins with it (warm start)
        M ≈ P·Qᵀ            = P·Pᵀ·M, the projection of M

    A projection: ‖M − P·Pᵀ·M‖ ≤ ‖M‖; from step to step P tends to the r leading left singular vectors, so the error
    tends to the least error of rank r. Needs feedback. A worker's residual is Mᵢ − P·Pᵀ·Mᵢ; the published
    one is Mᵢ − P·Qᵀ / W. Both have the same sum over the workers, and so the same aggregates, but the first is
    also a projection, and does not grow where workers have different data.

    A tensor of more than two dimensions is a matrix of its first dimension times the rest; vectors are sent as they
    are. r·(n + m) numbers. Workers that compute the basis on different hardware may differ in its last bits.

    Vogels, Karimireddy and Jaggi, PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization, 2019.
    """

    MEMORY: ClassVar[str] = "4·r·Σ columns"
    # Every element is a factor of an element of P, and infinity times 0 is NaN.
    shows_nonfinite: ClassVar[bool] = True
    rank: int

    def fitted(self, form: Form) -> Codec:
        """For a vector no compression; for a matrix, a rank of at most its shorter side."""
        if len(form.shape) < 2 or form.numel == 0:
            return Dense()
        shorter = min(self._sides(form))
        return Dense() if shorter == 1 else replace(self, rank=min(self.rank, shorter))

    def remark(self, form: Form) -> str:
        """Where the rank is larger than the matrix."""
        fitted = self.fitted(form)
        if not isinstance(fitted, PowerSgd) or fitted.rank == self.rank:
            return ""
        rows, columns = self._sides(form)
        return (
            f"--exchange.rank {self.rank} is larger than the shorter side of a {rows} × {columns} matrix: "
            f"rank {fitted.rank} is used there"
        )

    def fields(self, form: Form) -> tuple[Field, ...]:
        """P and Q."""
        rows, columns = self._sides(form)
        return Field(form.dtype, rows * self.rank), Field(form.dtype, columns * self.rank)

    def new_memory(self, form: Form, seed: int) -> Tensor:
        """A random Q, the same on all workers."""
        columns = self._sides(form)[1]
        draw = generator(seed, form.device)
        return torch.randn((columns, self.rank), generator=draw, dtype=form.dtype, device=form.device)

    def propose(self, x: Tensor, memory: Tensor | None) -> Tensor:
        """Mᵢ·Q."""
        start = self.new_memory(Form.of(x), seed=0) if memory is None else memory
        # (Qᵀ·Mᵀ)ᵀ with a contiguous Qᵀ: the same product as M·Q, in half the time.
        return (start.T.contiguous() @ self._matrix(x).T).T

    def basis(self, proposal: Tensor | None, form: Form, seed: int) -> Tensor | None:
        """The orthonormal P. (QR, because Gram-Schmidt loses it where columns are dependent.)"""
        if proposal is None or not bool(proposal.isfinite().all()):
            return proposal  # the guard stops what follows
        return torch.linalg.qr(proposal).Q

    def express(self, x: Tensor, basis: Tensor | None, workers: int) -> Tensor:
        """Mᵢᵀ·P."""
        assert basis is not None
        return (basis.T @ self._matrix(x)).T  # the faster order again

    def reconstruct(self, coordinates: Tensor, basis: Tensor | None, out: Tensor) -> None:
        """P·Qᵀ."""
        assert basis is not None
        left, right = (factors.view(-1, self.rank) for factors in (basis, coordinates))
        torch.mm(left, right.T, out=self._matrix(out))

    def add(self, payload: Payload, out: Tensor, seed: int) -> None:
        """Add P·Qᵀ, without a matrix in between."""
        left, right = (factors.view(-1, self.rank) for factors in payload)
        self._matrix(out).addmm_(left, right.T)

    def subtract(self, x: Tensor, payload: Payload, seed: int) -> None:
        """Subtract P·Qᵀ."""
        left, right = payload
        self.add((-left, right), x, seed)

    def remember(self, x: Tensor, payload: Payload, memory: Tensor | None, seed: int) -> Tensor | None:
        """Q with columns of length 1: only their directions matter, and small gradients must not underflow."""
        columns = payload[-1].view(-1, self.rank)
        lengths = columns.norm(dim=0)
        # A direction that this step's gradients lack would stay lost: keep the old one.
        return columns / lengths if memory is None else torch.where(lengths > 0, columns / lengths, memory)

    @staticmethod
    def _sides(form: Form) -> tuple[int, int]:
        return form.shape[0], form.numel // form.shape[0]

    @staticmethod
    def _matrix(x: Tensor) -> Tensor:
        return x.view(x.shape[0], -1)
