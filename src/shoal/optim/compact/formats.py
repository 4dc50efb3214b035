"""Compact formats: a code of 8 bits for optimizer state, and bfloat16 by stochastic rounding for parameters.

The code has a dynamic exponent, and a scale for each block (Dettmers et al. 2022, "8-bit optimizers")::

    block of 256 values     0.31   −0.0021   0       …      scale: the largest magnitude, 0.31
    divided by the scale    1      −0.0068   0       …
    nearest in the table    1      −0.0066   0       …      one byte each: decade, and place in it

A table has fine steps near 1 and reaches down to 10⁻⁶ or 10⁻⁷, because the values of one block differ by orders of
magnitude, and the large ones matter most.

A weight in bfloat16 has 8 significant bits, so an update below 1/512 of the weight would always be rounded away.
Rounded up or down at random, it changes the weight with the probability that makes the mean change right, and no
float32 copy is needed.
"""

import hashlib
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import NamedTuple, final

import torch
from torch import Tensor

BLOCK = 256
"""Values with a common scale. It divides the chunks at which parameters are cut into slices (`strategies/norms.py`), so
that a slice has the blocks, and the bits, of the whole."""
_SHIFT = 23 - 10
"""Bits of a float32 by which a value is not looked up: the sign, the exponent and 10 bits of the mantissa are left."""
_NUM_CELLS = 1 << (32 - _SHIFT)
"""A cell: the numbers that agree in these bits. A block's values are in few of them, so the cache has what is used."""
TABLE_BYTES = 2 * _NUM_CELLS
"""Of the tables that momenta and second moments are looked up in."""
SEGMENT = 1 << 16
"""Elements whose random numbers have the same multiplier."""
_DROPPED = 16
"""Bits that bfloat16 has less than float32."""
_MASK = (1 << _DROPPED) - 1


@final
class Scratch:
    """One buffer of float32 for each name and device.

    >>> scratch = Scratch()
    >>> buffer = scratch("moment", torch.zeros(3)).fill_(1)
    >>> scratch("moment", torch.zeros(2))
    tensor([1., 1.])
    """

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, torch.device], Tensor] = {}

    def __call__(self, name: str, like: Tensor) -> Tensor:
        """A flat buffer with as many elements as a tensor has; its contents are arbitrary."""
        key, numel = (name, like.device), like.numel()
        buffer = self._buffers.get(key)
        if buffer is None or len(buffer) < numel:
            buffer = self._buffers[key] = torch.empty(numel, dtype=torch.float32, device=like.device)
        return buffer if len(buffer) == numel else buffer[:numel]


class _Tables(NamedTuple):
    """Tables that encoding and decoding look up. Numbers are also tensors: torch would convert them in every call."""

    codes: Tensor
    """Of each cell."""
    values: Tensor
    """Of each code."""
    shift: Tensor
    mask: Tensor


@final
class DynamicCode:
    """Encodes values in bytes, and decodes them, block by block.

    The table of magnitudes has 0 and, in the decade from 10⁻⁽ᵉ⁺¹⁾ to 10⁻ᵉ, 2^(b − e) values in equal steps, for
    e = 0 … b. With a sign, b = 6: one bit of the byte is the sign. Without, b = 7.

    Error: in a block whose largest magnitude is A, a value x with 10⁻⁽ᵉ⁺¹⁾ ≤ |x| / A ≤ 10⁻ᵉ is decoded with an error of
    at most ::

        A · (0.45 · 10⁻ᵉ / 2^(b − e) + 2⁻¹¹ · 10⁻ᵉ)          half a step, and what a cell of the look-up adds

    so no value of the block is off by more than 0.0076 · A (signed) or 0.0041 · A (unsigned). The largest magnitude and
    zeros are exact. Below the smallest step s = 10⁻ᵇ the error is at most s · A. Without a sign, no value above
    10⁻⁴⁰ · A is decoded as zero: it is a second moment, and steps are divided by its root.

    Decoded values are encoded to the same bytes again, so a state that is saved as floats and loaded has the same bits.
    A block with a NaN is decoded as NaN.

    >>> code = DynamicCode(signed=True)
    >>> codes, scales = torch.empty(4, dtype=torch.uint8), torch.empty(1)
    >>> code.encode(torch.tensor([0.5, -0.25, 0.0, 1e-5]), codes, scales)
    >>> code.decode(codes, scales, torch.empty(4))
    tensor([ 5.0000e-01, -2.4688e-01,  0.0000e+00,  5.0000e-06])
    """

    def __init__(self, signed: bool) -> None:
        self.signed = signed
        self._decades = 6 if signed else 7
        self._on_device: dict[torch.device, _Tables] = {}

    @cached_property
    def magnitudes(self) -> Tensor:
        """The table: 0, and the magnitudes in ascending order; the last is 1."""
        values = [0.0]
        for decade in range(self._decades, -1, -1):
            steps = 2 ** (self._decades - decade)
            values += [(1 + 9 * step / steps) / 10 ** (decade + 1) for step in range(1, steps + 1)]
        return torch.tensor(values, dtype=torch.float64)

    def encode(self, values: Tensor, codes: Tensor, scales: Tensor, scratch: Scratch | None = None) -> None:
        """Encode flat values into bytes and a scale for each block; the last block may be shorter."""
        whole = len(values) // BLOCK * BLOCK
        if whole not in (0, len(values)):
            self.encode(values[:whole], codes[:whole], scales[:-1], scratch)
            self.encode(values[whole:], codes[whole:], scales[-1:], scratch)
            return
        tables = self._tables(values.device)
        scaled = (scratch or Scratch())("scaled", values)
        rows, scaled_rows = values.view(len(scales), -1), scaled.view(len(scales), -1)
        torch.amax(torch.abs(rows, out=scaled_rows) if self.signed else rows, 1, out=scales)
        # Not multiplied by the inverse, which overflows for tiny scales; 0 is divided by the smallest number.
        torch.div(rows, scales.clamp(min=2.0**-149)[:, None], out=scaled_rows)
        # The first bits of a float, as a number without a sign, are the number of its cell.
        index = scaled.view(torch.int32).bitwise_right_shift_(tables.shift).bitwise_and_(tables.mask)
        torch.index_select(tables.codes, 0, index, out=codes)

    def decode(self, codes: Tensor, scales: Tensor, out: Tensor, scratch: Scratch | None = None) -> Tensor:
        """Decode bytes into flat floats, which are returned."""
        whole = len(codes) // BLOCK * BLOCK
        if whole not in (0, len(codes)):
            self.decode(codes[:whole], scales[:-1], out[:whole], scratch)
            self.decode(codes[whole:], scales[-1:], out[whole:], scratch)
            return out
        index = (scratch or Scratch())("scaled", out).view(torch.int32).copy_(codes)
        torch.index_select(self._tables(codes.device).values, 0, index, out=out)
        out.view(len(scales), -1).mul_(scales[:, None])
        return out

    def _tables(self, device: torch.device) -> "_Tables":
        if device not in self._on_device:
            numbers = (torch.tensor(number, dtype=torch.int32) for number in (_SHIFT, _NUM_CELLS - 1))
            magnitudes = self.magnitudes.float()
            values = torch.cat((magnitudes, -magnitudes)) if self.signed else magnitudes
            tables = self._codes_of_cells(), values, *numbers
            self._on_device[device] = _Tables(*(table.to(device) for table in tables))
        return self._on_device[device]

    def _codes_of_cells(self) -> Tensor:
        """The code nearest to the middle of each cell."""
        bits = torch.arange(_NUM_CELLS, dtype=torch.int32).bitwise_left_shift_(_SHIFT)
        middles = bits.add_(1 << (_SHIFT - 1)).view(torch.float32)
        between = (self.magnitudes[1:] + self.magnitudes[:-1]) / 2
        codes = torch.bucketize(middles.abs(), between.float()).to(torch.uint8)
        if self.signed:
            # −0 has a code of its own, so that decoded values have their bytes again.
            codes[_NUM_CELLS // 2 :] |= 0x80
        else:
            codes[1:].clamp_(min=1)  # the first cell belongs to 0
        return codes


SIGNED = DynamicCode(signed=True)
"""For momenta."""
UNSIGNED = DynamicCode(signed=False)
"""For second moments."""


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
    # A NaN may have become a number.
    out.copy_(values).masked_fill_(is_nan, torch.nan)
