"""Stochastic rounding to integers, and the integers in as few bytes as they need."""

import torch
from torch import Tensor

from shoal.codecs.bits import pack, packed_bytes, unpack
from shoal.codecs.codec import Field, generator

_ODD = 0x0001_0001_0001_0001
_WIDE = {16: torch.int16, 32: torch.int32}


def largest_level(bits: int) -> int:
    """The largest integer of so many bits, one of them the sign: levels are −this … this.

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


def round_randomly(y: Tensor, seed: int) -> Tensor:
    """Round y in place to one of the two nearest integers, so that the mean over all seeds is y.

    ⌊y + u⌉ with u uniform between −½ and ½ is the upper integer with probability y − ⌊y⌋.
    """
    flat = y.view(-1)
    return flat.add_(noise(flat.numel(), seed, flat.device), alpha=2.0**-16).round_().view(y.shape)


def levels_field(numel: int, bits: int) -> Field:
    """What `levels_of` returns for so many elements."""
    return Field(_WIDE[bits], numel) if bits in _WIDE else Field(torch.uint8, packed_bytes(numel, bits))


def levels_of(rounded: Tensor, bits: int) -> Tensor:
    """Rounded numbers as integers of so many bits, packed."""
    if bits in _WIDE:
        return rounded.to(_WIDE[bits])
    signed = rounded.to(torch.int8)
    return (
        signed.view(torch.uint8)
        if bits == 8
        else pack(signed.bitwise_and_(2**bits - 1).view(torch.uint8), bits)
    )


def numbers_of(levels: Tensor, bits: int, numel: int, dtype: torch.dtype) -> Tensor:
    """The rounded numbers again."""
    if bits in _WIDE:
        return levels.to(dtype)
    if bits == 8:
        return levels.view(torch.int8).to(dtype)
    signs = 2 ** (bits - 1)
    # Two's complement of `bits` bits: flip the sign bit, and count from the smallest.
    return unpack(levels, bits, numel).bitwise_xor_(signs).to(dtype).sub_(signs)
