"""Stochastic rounding to integers of few bits: packed in bytes, with one scale for each block, chunk by chunk."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from shoal.codecs.codec import Field, Payload, generator

CHUNK = 1 << 16
"""Elements of a chunk: with its temporaries it fits the second-level cache, and no page is mapped anew."""
_ODD = 0x0001_0001_0001_0001
_WIDE = {16: torch.int16, 32: torch.int32}


def chunks(flat: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The chunks of a flat tensor, each with its start; on a GPU, the whole."""
    step = CHUNK if flat.is_cpu else max(1, flat.numel())
    for start in range(0, flat.numel(), step):
        yield start, flat[start : start + step]


def packed_bytes(numel: int, bits: int) -> int:
    """How many bytes this many integers of 1, 2, 4 or 8 bits take.

    >>> packed_bytes(9, 1), packed_bytes(9, 4)
    (2, 5)
    """
    return -(-numel // (8 // bits))


def pack(integers: Tensor, bits: int) -> Tensor:
    """Pack integers below 2^bits, given as uint8; each byte takes one from each of 8 / bits runs of the whole.

    >>> pack(torch.tensor([1, 0, 1, 1], dtype=torch.uint8), 4)
    tensor([17, 16], dtype=torch.uint8)
    """
    per_byte = 8 // bits
    num_bytes = packed_bytes(integers.numel(), bits)
    if integers.numel() < num_bytes * per_byte:
        padding = integers.new_zeros(num_bytes * per_byte - integers.numel())
        integers = torch.cat([integers, padding])
    # Runs, not neighbours: every operation then reads contiguous memory.
    runs = integers.view(per_byte, num_bytes)
    packed = runs[0].clone()
    for place in range(1, per_byte):
        packed |= runs[place] << (place * bits)
    return packed


def unpack(packed: Tensor, bits: int, numel: int) -> Tensor:
    """The integers again.

    >>> unpack(torch.tensor([17, 16], dtype=torch.uint8), 4, 3)
    tensor([1, 0, 1], dtype=torch.uint8)
    """
    per_byte, mask = 8 // bits, 2**bits - 1
    runs = packed.new_empty((per_byte, packed.numel()))
    for place in range(per_byte):
        torch.bitwise_and(packed >> (place * bits), mask, out=runs[place])
    return runs.view(-1)[:numel]


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


def num_blocks(numel: int, block: int) -> int:
    """How many blocks this many elements make; the last may be shorter.

    >>> num_blocks(257, 256), num_blocks(0, 256)
    (2, 0)
    """
    return -(-numel // block)


def encode_blocks(x: Tensor, block: int, bits: int, norm: float, seed: int, damping: float = 1.0) -> Payload:
    """Divide each block by its norm, round to −s … s with s = 2^(bits − 1) − 1, and send levels and norms."""
    flat, numel = x.view(-1), x.numel()
    top = largest_level(bits)
    scales = flat.new_empty(num_blocks(numel, block))
    levels = torch.empty(numel, dtype=level_dtype(bits), device=x.device)
    random = noise(scales.numel() * block, seed, x.device)
    for first, last, start, stop in _runs(flat, block):
        short = last * block - stop
        rows = (pad(flat[start:stop], (0, short)) if short else flat[start:stop]).view(-1, block)
        # Levels of 16 bits and more need more digits than float32 has.
        rows = rows.double() if bits >= 16 else rows
        # For the largest magnitude, two passes take a third of the time of torch's norm.
        norms = rows.abs().amax(1) if norm == math.inf else torch.linalg.vector_norm(rows, norm, dim=1)
        scaled = (rows * torch.where(norms > 0, top / norms, 0.0).unsqueeze(1)).view(-1)
        levels[start:stop] = round_with(scaled, random[first * block : last * block])[: stop - start]
        scales[first:last] = norms * (damping / top)
    return scales, levels_of(levels, bits)


def add_blocks(payload: Payload, out: Tensor, block: int, bits: int) -> None:
    """Add levels times scales to `out`."""
    scales, levels = payload
    flat = out.view(-1)
    integers = integers_of(levels, bits, flat.numel())
    wide = torch.float64 if bits >= 16 else out.dtype
    for first, last, start, stop in _runs(flat, block):
        numbers = integers[start:stop].to(wide)
        if stop - start == (last - first) * block:
            numbers.view(-1, block).mul_(scales[first:last].unsqueeze(1))
        else:
            numbers.mul_(scales[first])
        flat[start:stop].add_(numbers)


def _runs(flat: Tensor, block: int) -> Iterator[tuple[int, int, int, int]]:
    """Runs of whole blocks that fit the cache, then the short block: first and last block, first and last element.

    On a GPU, one run of all whole blocks.
    """
    numel = flat.numel()
    whole = numel // block
    step = max(1, CHUNK // block) if flat.is_cpu else max(1, whole)
    for first in range(0, whole, step):
        last = min(whole, first + step)
        yield first, last, first * block, last * block
    if numel % block:
        yield whole, whole + 1, whole * block, numel
