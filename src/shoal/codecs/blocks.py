"""Blocks of elements that share one scale."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from shoal.codecs.chunks import CHUNK
from shoal.codecs.codec import Field, Form, Payload
from shoal.codecs.rounding import (
    integers_of,
    largest_level,
    level_dtype,
    levels_field,
    levels_of,
    noise,
    round_with,
)


def num_blocks(numel: int, block: int) -> int:
    """How many blocks this many elements make; the last may be shorter.

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
