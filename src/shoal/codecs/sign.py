"""Signs: one bit per element, and one or two scales."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from shoal.codecs.codec import Additive, Field, Form, Payload
from shoal.codecs.rounding import chunks, pack, packed_bytes, unpack


@dataclass(frozen=True)
class Signs(Additive):
    """A bit says whether an element is ≥ 0; two numbers stand for the elements of either sign.

    The workers' decoded gradients are summed, or with `vote` the majority decides each sign (Bernstein et al., signSGD
    with Majority Vote, 2019): with W workers and votes vᵢ = ±1, the aggregate is Σ upᵢ where Σ vᵢ > 0, Σ downᵢ where
    it is < 0, and their mean at a tie. So it also stands for the sum. A vote is robust, but it is not the sum of what
    was sent: feedback has no effect on what the majority overruled, so the two cannot be combined.
    """

    NUM_SCALES: ClassVar[int]
    """How many numbers are sent."""

    vote: bool

    @abstractmethod
    def scales(self, flat: Tensor, is_up: Tensor) -> Tensor:
        """The numbers that are sent."""

    @abstractmethod
    def up_and_down(self, scales: Tensor) -> tuple[Tensor, Tensor]:
        """What stands for elements ≥ 0, and what for those < 0."""

    def fields(self, form: Form) -> tuple[Field, ...]:
        """Scales and bits."""
        scales = Field(form.dtype, self.NUM_SCALES if form.numel else 0)
        return scales, Field(torch.uint8, packed_bytes(form.numel, 1))

    def encode(self, x: Tensor, seed: int, memory: Tensor | None = None) -> Payload:
        """Scales and bits."""
        flat = x.view(-1)
        is_up = flat >= 0
        scales = self.scales(flat, is_up) if flat.numel() else flat.clone()
        return scales, pack(is_up.view(torch.uint8), 1)

    def add(self, payload: Payload, out: Tensor, seed: int) -> None:
        """Add the number of each sign."""
        if not out.numel():
            return
        scales, bits = payload
        is_up = unpack(bits, 1, out.numel())
        up, down = self.up_and_down(scales)
        for start, chunk in chunks(out.view(-1)):
            numbers = is_up[start : start + chunk.numel()].to(out.dtype)
            chunk.add_(numbers.mul_(up - down).add_(down))

    def aggregate(self, payloads: Sequence[Payload], out: Tensor, seeds: Sequence[int]) -> None:
        """The sum, or the vote."""
        if not self.vote or not out.numel():
            super().aggregate(payloads, out, seeds)
            return
        ups, downs = zip(*(self.up_and_down(scales) for scales, _ in payloads), strict=True)
        up, down = torch.stack(ups).sum(), torch.stack(downs).sum()
        out.zero_()
        for _, bits in payloads:
            out.add_(unpack(bits, 1, out.numel()).view(out.shape))
        # From the number of votes for up to −1, 0 or 1.
        out.mul_(2).sub_(len(payloads)).sign_()
        out.mul_((up - down) / 2).add_((up + down) / 2)


@dataclass(frozen=True)
class Sign(Signs):
    """sign(x) times the mean magnitude ‖x‖₁ / n.

    A contraction with δ = ‖x‖₁² / (n·‖x‖₂²): the flatter the gradient, the better. Biased. One bit per element, and a
    scale.

    Bernstein et al., signSGD: Compressed Optimisation for Non-Convex Problems, 2018; with the scale and feedback:
    Karimireddy et al., Error Feedback Fixes SignSGD and other Gradient Compression Schemes, 2019.
    """

    NUM_SCALES = 1

    def scales(self, flat: Tensor, is_up: Tensor) -> Tensor:
        """The mean magnitude."""
        total = torch.stack([chunk.abs().sum() for _, chunk in chunks(flat)]).sum()
        return (total / flat.numel()).view(1)

    def up_and_down(self, scales: Tensor) -> tuple[Tensor, Tensor]:
        """Plus and minus the mean magnitude."""
        return scales[0], -scales[0]


@dataclass(frozen=True)
class OneBit(Signs):
    """The mean of the elements ≥ 0 stands for each of them, and the mean of the others for those.

    The best two values for these signs: the error has the mean 0 on both sides. Biased; needs feedback. One bit per
    element, and two means.

    Seide et al., 1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of Speech
    DNNs, 2014 (there for each column, here for each parameter).
    """

    NUM_SCALES = 2

    def scales(self, flat: Tensor, is_up: Tensor) -> Tensor:
        """Both means; 0 for a sign that no element has."""
        num_up = is_up.sum()
        total_up = torch.stack([chunk.clamp(min=0).sum() for _, chunk in chunks(flat)]).sum()
        up = total_up / num_up.clamp(min=1)
        down = (flat.sum() - total_up) / (flat.numel() - num_up).clamp(min=1)
        return torch.stack([up, down])

    def up_and_down(self, scales: Tensor) -> tuple[Tensor, Tensor]:
        """Both means."""
        return scales[0], scales[1]
