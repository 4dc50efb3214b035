"""Integers of 8 or 4 bits, with one scale for each block."""

import math
from dataclasses import dataclass

from torch import Tensor

from shoal.codecs.blocks import add_blocks, block_fields, encode_blocks
from shoal.codecs.codec import Field, Form, Payload, Scaled


@dataclass(frozen=True)
class Integer(Scaled):
    """Rounds x·s / max|block| to an integer between −s and s = 2^(bits − 1) − 1, up or down at random.

    Unbiased. No element is off by more than max|block| / s, and E‖x − C(x)‖² ≤ block / (4·s²)·‖x‖²: 0.004 for 8 bits
    and blocks of 256, 0.33 for 4 bits and blocks of 64, so it is a contraction as well. Bytes per element: bits / 8,
    and a scale for each block.

    Dettmers, 8-Bit Approximations for Parallelism in Deep Learning, 2016; Gupta et al., Deep Learning with Limited
    Numerical Precision, 2015 (stochastic rounding).
    """

    bits: int
    block: int

    @property
    def is_unbiased(self) -> bool:
        """Yes."""
        return True

    def fields(self, form: Form) -> tuple[Field, ...]:
        """Scales and integers."""
        return block_fields(form, self.block, self.bits)

    def encode(self, x: Tensor, seed: int, memory: Tensor | None = None) -> Payload:
        """Scales and integers."""
        del memory
        return encode_blocks(x, self.block, self.bits, math.inf, seed)

    def add(self, payload: Payload, out: Tensor, seed: int) -> None:
        """Add integers times scales."""
        del seed
        add_blocks(payload, out, self.block, self.bits)
