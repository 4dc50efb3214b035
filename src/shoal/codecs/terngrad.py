"""TernGrad: −1, 0 or 1, and one scale."""

from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.codecs.codec import Codec, Field, Form, Payload
from shoal.codecs.rounding import levels_field, levels_of, numbers_of, round_randomly


@dataclass(frozen=True)
class TernGrad(Codec):
    """Sends sign(x) with probability |x| / s and else 0, where s = max |x| of the parameter: s·E[level] = x.

    Before that, elements are clipped to `clip` standard deviations, because one large element makes s large and all
    others noisy; it is unbiased for the clipped gradient (`clip` = 0: for the gradient). E‖C(x)‖² = s·‖x‖₁, which can
    exceed 2·‖x‖²: no contraction. With feedback the scale is therefore *damped* to ‖x‖² / ‖x‖₁, the one with the least
    mean error. Two bits per element, and a scale.

    Wen et al., TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep Learning, 2017.
    """

    clip: float
    is_damped: bool = False

    @property
    def is_unbiased(self) -> bool:
        """If nothing is clipped or damped."""
        return self.clip == 0 and not self.is_damped

    def fields(self, form: Form) -> tuple[Field, ...]:
        """The scale and the levels."""
        return Field(form.dtype, 1 if form.numel else 0), levels_field(form.numel, bits=2)

    def encode(self, x: Tensor, seed: int, memory: Tensor | None = None) -> Payload:
        """The scale and the levels."""
        del memory
        flat = x.view(-1)
        if not flat.numel():
            return flat.clone(), levels_of(flat, bits=2)
        if self.clip:
            most = self.clip * flat.square().mean().sqrt()
            flat = flat.clamp(-most, most)
        largest = flat.abs().amax()
        levels = round_randomly(flat * torch.where(largest > 0, 1 / largest, 0.0), seed)
        scale = largest
        if self.is_damped:
            total = torch.linalg.vector_norm(flat, 1)
            scale = torch.where(total > 0, torch.linalg.vector_norm(flat, 2) ** 2 / total, 0.0)
        return scale.view(1), levels_of(levels, bits=2)

    def decode(self, payload: Payload, form: Form, seed: int) -> Tensor:
        """Levels times the scale."""
        del seed
        scale, levels = payload
        numbers = numbers_of(levels, 2, form.numel, form.dtype)
        return (numbers * scale).view(form.shape) if form.numel else numbers.view(form.shape)
