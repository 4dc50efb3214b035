"""A code of 8 bits with a dynamic exponent, and a scale for each block (Dettmers et al. 2022, "8-bit optimizers").

::

    block of 256 values     0.31   −0.0021   0       …      scale: the largest magnitude, 0.31
    divided by the scale    1      −0.0068   0       …
    nearest in the table    1      −0.0066   0       …      one byte each: decade, and place in it

A table has fine steps near 1 and reaches down to 10⁻⁶ or 10⁻⁷, because the values of one block differ by orders of
magnitude, and the large ones matter most.
"""

from functools import cached_property
from typing import NamedTuple, final

import torch
from torch import Tensor

from shoal.optim.compact.scratch import Scratch

BLOCK = 256
"""Values with a common scale. It divides the chunks at which parameters are cut into slices (`strategies/norms.py`), so
that a slice has the blocks, and the bits, of the whole."""

_SHIFT = 23 - 10
"""Bits of a float32 by which a value is not looked up: the sign, the exponent and 10 bits of the mantissa are left."""
_NUM_CELLS = 1 << (32 - _SHIFT)
"""A cell: the numbers that agree in these bits. A block's values are in few of them, so the cache has what is used."""
TABLE_BYTES = 2 * _NUM_CELLS
"""Of the tables that momenta and second moments are looked up in."""


class _Tables(NamedTuple):
    """What encoding and decoding look up. Numbers are tensors, too: torch would convert them in every call."""

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

    def error_bound(self, magnitude: Tensor) -> Tensor:
        """The largest error of values of this magnitude, in a block whose largest is 1: the bound of the docstring."""
        bound = torch.full_like(magnitude, 10.0**-self._decades)
        for decade in range(self._decades, -1, -1):
            half_step = 0.45 * 10**-decade / 2 ** (self._decades - decade)
            within = magnitude > 10.0 ** -(decade + 1)
            bound[within] = half_step + 2.0**-11 * 10**-decade
        # Below the smallest magnitude, its whole size: a value that is not zero may be rounded up to it.
        return bound.clamp_(min=10.0**-self._decades)

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
            tables = self._codes_of_cells(), self._values_of_codes(), *numbers
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
            codes[1:].clamp_(min=1)  # the first cell is that of 0
        return codes

    def _values_of_codes(self) -> Tensor:
        magnitudes = self.magnitudes.float()
        return torch.cat((magnitudes, -magnitudes)) if self.signed else magnitudes


SIGNED = DynamicCode(signed=True)
"""For momenta."""
UNSIGNED = DynamicCode(signed=False)
"""For second moments."""
