"""Several small integers in one byte."""

import torch
from torch import Tensor


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
