"""Codecs that send every element with fewer bits: half precision, integers, QSGD, TernGrad."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.codecs.codec import Additive, Field, Form, Linear, Payload
from shoal.codecs.rounding import (
    add_blocks,
    chunks,
    encode_blocks,
    integers_of,
    largest_level,
    level_dtype,
    levels_field,
    levels_of,
    noise,
    num_blocks,
    round_with,
)


@dataclass(frozen=True)
class Half(Linear):
    """Rounds every element to a 16-bit format; the workers sum in that format.

    Relative error of each rounding: 2⁻¹¹ (fp16), 2⁻⁸ (bf16); W − 1 additions round once more each. fp16 has a short
    range: elements below 6·10⁻⁸ become 0, and elements above 65504 / W become that, so that no sum is infinite. bf16
    has the range of float32. 2 bytes per element.

    Micikevicius et al., Mixed Precision Training, 2018.
    """

    dtype: torch.dtype

    def fields(self, form: Form) -> tuple[Field, ...]:
        """All elements, in 16 bits."""
        return (Field(self.dtype, form.numel),)

    def express(self, x: Tensor, basis: Tensor | None, workers: int) -> Tensor:
        """The rounded elements."""
        flat = x.reshape(-1)
        if self.dtype is torch.float16:
            # A little less than the quotient: rounding must not exceed it.
            most = torch.finfo(torch.float16).max / workers * (1 - 2**-9)
            flat = flat.clamp(-most, most)
        return flat.to(self.dtype, copy=True)


@dataclass(frozen=True)
class Blocked(Additive):
    """A level of a few bits for each element, and a scale for each block of elements."""

    bits: int
    block: int

    def fields(self, form: Form) -> tuple[Field, ...]:
        """Scales and levels."""
        scales = Field(form.dtype, num_blocks(form.numel, self.block))
        return scales, levels_field(form.numel, self.bits)

    def add(self, payload: Payload, out: Tensor, seed: int) -> None:
        """Add levels times scales."""
        add_blocks(payload, out, self.block, self.bits)


@dataclass(frozen=True)
class Integer(Blocked):
    """Rounds x·s / max|block| to an integer between −s and s = 2^(bits − 1) − 1, up or down at random.

    Unbiased. No element is off by more than max|block| / s, and E‖x − C(x)‖² ≤ block / (4·s²)·‖x‖²: 0.004 for 8 bits
    and blocks of 256, 0.33 for 4 bits and blocks of 64, so it is a contraction as well. Bytes per element: bits / 8,
    and a scale for each block.

    Dettmers, 8-Bit Approximations for Parallelism in Deep Learning, 2016; Gupta et al., Deep Learning with Limited
    Numerical Precision, 2015 (stochastic rounding).
    """

    @property
    def is_unbiased(self) -> bool:
        """Yes."""
        return True

    def encode(self, x: Tensor, seed: int, memory: Tensor | None = None) -> Payload:
        """Scales and integers."""
        return encode_blocks(x, self.block, self.bits, math.inf, seed)


@dataclass(frozen=True)
class Qsgd(Blocked):
    """Rounds x·s / ‖block‖₂ to an integer, up or down at random; s = 2^(bits − 1) − 1 levels.

    Unbiased, with E‖x − C(x)‖² ≤ ω·‖x‖², ω = min(d / s², √d / s) for blocks of d elements. It is no contraction if
    ω ≥ 1; with feedback, the decoded numbers are therefore *damped* by 1 / (1 + ω), which makes it one with
    δ = 1 / (1 + ω). Bytes per element: bits / 8, and a norm for each block. With 32 bits no element is off by more than
    ‖block‖₂·2⁻³⁰.

    Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding, 2017 (levels of fixed
    width here, not Elias codes: payloads have one size).
    """

    is_damped: bool = False

    @property
    def is_unbiased(self) -> bool:
        """Unless damped."""
        return not self.is_damped

    @property
    def variance(self) -> float:
        """The bound ω."""
        levels = largest_level(self.bits)
        return min(self.block / levels**2, math.sqrt(self.block) / levels)

    def encode(self, x: Tensor, seed: int, memory: Tensor | None = None) -> Payload:
        """Norms and levels."""
        damping = 1 / (1 + self.variance) if self.is_damped else 1.0
        return encode_blocks(x, self.block, self.bits, 2, seed, damping)


@dataclass(frozen=True)
class TernGrad(Additive):
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
        scale, levels = payload
        integers = integers_of(levels, 2, out.numel())
        for start, chunk in chunks(out.view(-1)):
            chunk.addcmul_(integers[start : start + chunk.numel()].to(out.dtype), scale)
