"""Stochastic rounding to integers, and the integers in as few bytes as they need."""

import torch
from torch import Tensor

from shoal.codecs.bits import pack, packed_bytes, unpack
from shoal.codecs.codec import Field, generator

_ODD = 0x0001_0001_0001_0001
_WIDE = {16: torch.int16, 32: torch.int32}


def largest_level(bits: int) -> int:
    """The largest integer of this many bits, one of them the sign: levels are −this … this.

    >>> largest_level(8), largest_level(2)
    (127, 1)
    """
    return 2 ** (bits - 1) - 1


def noise(numel: int, seed: int, device: torch.device) -> Tensor:
    """Random odd 16-bit integers, symmetric around 0: divided by 2¹⁶ they are uniform between −½ and ½.

    Four from each random number of 64 bits: drawing is what stochastic rounding spends most of its time on.
    """
    words = torch.empty(-(-numel // 4), dtype=torch.int64, device=device)
    words.random_(-(2**63), None, generator=generator(seed, device))
    return words.bitwise_or_(_ODD).view(torch.int16)[:numel]


def round_with(y: Tensor, random: Tensor) -> Tensor:
    """Round flat y in place to one of the two nearest integers, so that the mean over all `noise` is y.

    ⌊y + u⌉ with u uniform between −½ and ½ is the upper integer with probability y − ⌊y⌋.
    """
    return y.add_(random, alpha=2.0**-16).round_()


def level_dtype(bits: int) -> torch.dtype:
    """The integers that levels of this many bits are computed in."""
    return _WIDE.get(bits, torch.int8)


def levels_field(numel: int, bits: int) -> Field:
    """What `levels_of` returns for this many elements."""
    return Field(_WIDE[bits], numel) if bits in _WIDE else Field(torch.uint8, packed_bytes(numel, bits))


def levels_of(integers: Tensor, bits: int) -> Tensor:
    """Integers of `level_dtype`, packed in this many bits each; overwrites them."""
    if bits in _WIDE:
        return integers
    return (
        integers.view(torch.uint8)
        if bits == 8
        else pack(integers.bitwise_and_(2**bits - 1).view(torch.uint8), bits)
    )


def integers_of(levels: Tensor, bits: int, numel: int) -> Tensor:
    """The integers again."""
    if bits in _WIDE:
        return levels
    if bits == 8:
        return levels.view(torch.int8)
    sign = 2 ** (bits - 1)
    # Two's complement of `bits` bits: flip the sign bit, and count from the smallest.
    return unpack(levels, bits, numel).bitwise_xor_(sign).view(torch.int8).sub_(sign)
