"""Blocks of elements that share one scale."""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from shoal.codecs.codec import Field, Form, Payload
from shoal.codecs.rounding import largest_level, levels_field, levels_of, numbers_of, round_randomly


def num_blocks(numel: int, block: int) -> int:
    """How many blocks so many elements make; the last may be shorter.

    >>> num_blocks(257, 256), num_blocks(0, 256)
    (2, 0)
    """
    return -(-numel // block)


def block_fields(form: Form, block: int, bits: int) -> tuple[Field, ...]:
    """A scale for each block, and a level for each element."""
    return Field(form.dtype, num_blocks(form.numel, block)), levels_field(form.numel, bits)


def encode_blocks(x: Tensor, block: int, bits: int, norm: float, seed: int, damping: float = 1.0) -> Payload:
    """Divide each block by its norm, round to −s … s with s = 2^(bits − 1) − 1, and send levels and norms."""
    flat, numel = x.view(-1), x.numel()
    # Levels of 16 bits and more need more digits than float32 has.
    flat = flat.double() if bits >= 16 else flat
    rows = pad(flat, (0, -numel % block)).view(-1, block) if numel % block else flat.view(-1, block)
    # For the largest magnitude, two passes take a third of the time of torch's norm.
    norms = rows.abs().amax(1) if norm == math.inf else torch.linalg.vector_norm(rows, norm, dim=1)
    top = largest_level(bits)
    per_unit = torch.where(norms > 0, top / norms, 0.0)
    rounded = round_randomly(rows * per_unit.unsqueeze(1), seed).view(-1)[:numel]
    return (norms * (damping / top)).to(x.dtype), levels_of(rounded, bits)


def decode_blocks(payload: Payload, form: Form, block: int, bits: int) -> Tensor:
    """Levels times scales."""
    scales, levels = payload
    wide = torch.float64 if bits >= 16 else form.dtype
    numbers, numel = numbers_of(levels, bits, form.numel, wide), form.numel
    whole = numel - numel % block
    numbers[:whole].view(-1, block).mul_(scales[: whole // block].unsqueeze(1))
    if whole < numel:
        numbers[whole:].mul_(scales[-1])
    return numbers.to(form.dtype).view(form.shape)
