"""Stochastic rounding to bfloat16: up or down at random, so that the mean of the rounded value is the value.

A weight in bfloat16 has 8 significant bits, so an update below 1/512 of the weight would always be rounded away.
Rounded at random, it changes the weight with the probability that makes the mean change right, and no float32 copy is
needed.
"""

import hashlib

import torch
from torch import Tensor

_DROPPED = 16
"""Bits that bfloat16 has less than float32."""
_MASK = (1 << _DROPPED) - 1
# Multipliers of a hash of 32 bits; the second as a signed number.
_FIRST, _SECOND = 0x7FEB352D, 0x846CA68B - 2**32


def rounding_key(seed: int, name: str, step: int) -> int:
    """The key of the random numbers of one parameter in one update."""
    digest = hashlib.blake2b(f"{seed}/{name}/{step}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little", signed=True)


def random_bits(key: int, first: int, like: Tensor) -> Tensor:
    """16 random bits for each of the elements from number `first` on, as int32: a pure function of key and number.

    Workers that round the same elements therefore round them alike, and so do workers that hold slices of them.
    """
    bits = torch.arange(first, first + like.numel(), dtype=torch.int32, device=like.device)
    bits.bitwise_xor_(key)
    for shift, factor in ((16, _FIRST), (15, _SECOND)):
        # The shift repeats the sign: the mask makes it a shift of unsigned numbers.
        bits.bitwise_xor_(bits.bitwise_right_shift(shift).bitwise_and_((1 << (32 - shift)) - 1)).mul_(factor)
    return bits.bitwise_right_shift_(_DROPPED).bitwise_and_(_MASK)


def round_stochastically(values: Tensor, out: Tensor, key: int, first: int) -> None:
    """Round float32 values to bfloat16, into `out`; their number in the whole parameter starts with `first`.

    A value is between two neighbours of bfloat16, and becomes the farther from zero with the probability of its
    distance from the other: E[rounded] = value. `values` is overwritten. Values of bfloat16 stay as they are, and so do
    infinity and NaN.

    >>> out = torch.empty(1000, dtype=torch.bfloat16)
    >>> round_stochastically(torch.full((1000,), 1 + 2**-9), out, key=1, first=0)       # a quarter of the way
    >>> out.unique().tolist(), out.float().mean().sub(1).mul(2**7)
    ([1.0, 1.0078125], tensor(0.2390))
    """
    bits = values.view(torch.int32)
    # Adding to the bits that are then dropped carries over with the probability that they stand for.
    bits.add_(random_bits(key, first, values)).bitwise_and_(~_MASK)
    out.copy_(values)
