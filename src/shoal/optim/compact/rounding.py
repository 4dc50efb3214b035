"""Stochastic rounding to bfloat16: up or down at random, so that the mean of the rounded value is the value.

A weight in bfloat16 has 8 significant bits, so an update below 1/512 of the weight would always be rounded away.
Rounded at random, it changes the weight with the probability that makes the mean change right, and no float32 copy is
needed.
"""

import hashlib
from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor

from shoal.optim.compact.scratch import Scratch

SEGMENT = 1 << 16
"""Elements whose random numbers have the same multiplier."""
_DROPPED = 16
"""Bits that bfloat16 has less than float32."""
_MASK = (1 << _DROPPED) - 1


def rounding_key(seed: int, name: str, step: int) -> str:
    """The key of the random numbers of one parameter in one update."""
    return f"{seed}/{name}/{step}"


def random_bits(key: str, first: int, out: Tensor) -> Tensor:
    """Fill a flat int32 tensor with 16 random bits for each of the elements from number `first` on; returned.

    Element x of segment s has the upper half of (a·π(x) + b) mod 2³², where a and b are drawn for (key, s), and π is a
    fixed permutation: multiply-shift hashing (Dietzfelbinger 1996). Each number is uniform, and any two of a segment
    are independent of each other. So errors of rounding have the mean 0 and add up like independent ones, and a number
    costs three operations.

    It is a pure function of key and number: workers that round the same elements round them alike, and so do workers
    that hold slices of them.
    """
    places = _permutation(out.device)
    for segments, part, within in _parts(first, out.numel()):
        factors = [_factors(key, segment) for segment in segments]
        a, b = torch.tensor(factors, dtype=torch.int32, device=out.device).T[:, :, None]
        torch.mul(places[within], a, out=out[part].view(len(segments), -1)).add_(b)
    return out.bitwise_right_shift_(_DROPPED).bitwise_and_(_MASK)  # the shift repeats the sign


def _parts(first: int, numel: int) -> Iterator[tuple[range, slice, slice]]:
    """Elements in whole segments, and what is before and after: segments, which elements, where in the segments."""
    at = 0
    while at < numel:
        segment, offset = divmod(first + at, SEGMENT)
        whole = 0 if offset else (numel - at) // SEGMENT
        count = whole * SEGMENT or min(numel - at, SEGMENT - offset)
        within = slice(None) if whole else slice(offset, offset + count)
        yield range(segment, segment + max(1, whole)), slice(at, at + count), within
        at += count


def _factors(key: str, segment: int) -> tuple[int, int]:
    digest = hashlib.blake2b(f"{key}/{segment}".encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little", signed=True), int.from_bytes(
        digest[4:], "little", signed=True
    )


@lru_cache(maxsize=8)
def _permutation(device: torch.device) -> Tensor:
    """The numbers of a segment's elements in an order without a pattern: neighbours are rounded unlike each other."""
    places = torch.arange(SEGMENT, dtype=torch.int32)
    for factor, shift in ((40503, 7), (60493, 9)):
        # Multiplying by an odd number, and adding upper bits to lower ones, can both be undone: no number is lost.
        places = (places * factor) & (SEGMENT - 1)
        places ^= places >> shift
    return places.to(device)


def round_stochastically(
    values: Tensor, out: Tensor, key: str, first: int, scratch: Scratch | None = None
) -> None:
    """Round float32 values to bfloat16, into `out`; their number in the whole parameter starts with `first`.

    A value is between two neighbours of bfloat16, and becomes the farther from zero with the probability of its
    distance from the other: E[rounded] = value. `values` is overwritten. Values of bfloat16 stay as they are, and so do
    infinity and NaN. The neighbours of a value beyond the largest of bfloat16 (3.39e38) are that one and infinity.

    >>> out = torch.empty(1000, dtype=torch.bfloat16)
    >>> round_stochastically(torch.full((1000,), 1 + 2**-9), out, rounding_key(0, "weight", 1), first=0)
    >>> out.unique().tolist(), out.float().mean().sub(1).mul(2**7)       # a quarter of the way
    ([1.0, 1.0078125], tensor(0.2690))
    """
    random = random_bits(key, first, (scratch or Scratch())("random", values).view(torch.int32))
    is_nan = values.isnan()
    # Adding to the bits that are then dropped carries over with the probability that they stand for.
    values.view(torch.int32).add_(random).bitwise_and_(~_MASK)
    # The bits of a NaN may have become those of a number.
    out.copy_(values).masked_fill_(is_nan, torch.nan)
