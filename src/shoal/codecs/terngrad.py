"""TernGrad: −1, 0 or 1, and one scale."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.codecs.chunks import chunks
from shoal.codecs.codec import Field, Form, Payload, Scaled
from shoal.codecs.rounding import integers_of, level_dtype, levels_field, levels_of, noise, round_with


@dataclass(frozen=True)
class TernGrad(Scaled):
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
        levels = torch.empty(flat.numel(), dtype=level_dtype(bits=2), device=x.device)
        if not flat.numel():
            return flat.clone(), levels_of(levels, bits=2)
        low, high = torch.aminmax(flat)
        largest = torch.maximum(-low, high)
        if self.clip:
            deviation = torch.linalg.vector_norm(flat) / math.sqrt(flat.numel())
            largest = torch.minimum(largest, self.clip * deviation)
        per_unit = torch.where(largest > 0, 1 / largest, 0.0)
        random = noise(flat.numel(), seed, x.device)
        for start, chunk in chunks(flat):
            stop = start + chunk.numel()
            scaled = (chunk * per_unit).clamp_(-1, 1)
            levels[start:stop] = round_with(scaled, random[start:stop])
        scale = self._damped(flat, largest) if self.is_damped else largest
        return scale.view(1), levels_of(levels, bits=2)

    def _damped(self, flat: Tensor, largest: Tensor) -> Tensor:
        clipped = flat.clamp(-largest, largest)
        total = torch.linalg.vector_norm(clipped, 1)
        return torch.where(total > 0, torch.linalg.vector_norm(clipped) ** 2 / total, 0.0)

    def add(self, payload: Payload, out: Tensor, seed: int) -> None:
        """Add levels times the scale."""
        del seed
        scale, levels = payload
        integers = integers_of(levels, 2, out.numel())
        for start, chunk in chunks(out.view(-1)):
            chunk.addcmul_(integers[start : start + chunk.numel()].to(out.dtype), scale)
