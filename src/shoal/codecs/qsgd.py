"""QSGD: levels between 0 and the norm of a block."""

import math
from dataclasses import dataclass

from torch import Tensor

from shoal.codecs.blocks import add_blocks, block_fields, encode_blocks
from shoal.codecs.codec import Field, Form, Payload, Scaled
from shoal.codecs.rounding import largest_level


@dataclass(frozen=True)
class Qsgd(Scaled):
    """Rounds x·s / ‖block‖₂ to an integer, up or down at random; s = 2^(bits − 1) − 1 levels.

    Unbiased, with E‖x − C(x)‖² ≤ ω·‖x‖², ω = min(d / s², √d / s) for blocks of d elements. It is no contraction if
    ω ≥ 1; with feedback, the decoded numbers are therefore *damped* by 1 / (1 + ω), which makes it one with
    δ = 1 / (1 + ω). Bytes per element: bits / 8, and a norm for each block. With 32 bits no element is off by more than
    ‖block‖₂·2⁻³⁰.

    Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding, 2017 (levels of fixed
    width here, not Elias codes: payloads have one size).
    """

    bits: int
    block: int
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

    def fields(self, form: Form) -> tuple[Field, ...]:
        """Norms and levels."""
        return block_fields(form, self.block, self.bits)

    def encode(self, x: Tensor, seed: int, memory: Tensor | None = None) -> Payload:
        """Norms and levels."""
        del memory
        damping = 1 / (1 + self.variance) if self.is_damped else 1.0
        return encode_blocks(x, self.block, self.bits, 2, seed, damping)

    def add(self, payload: Payload, out: Tensor, seed: int) -> None:
        """Add levels times norms."""
        del seed
        add_blocks(payload, out, self.block, self.bits)
