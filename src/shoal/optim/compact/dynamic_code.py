"""A code of 8 bits with a dynamic exponent, and a scale for each block (Dettmers et al. 2022, "8-bit optimizers").

::

    block of 256 values     0.31   −0.0021   0       …      scale: the largest magnitude, 0.31
    divided by the scale    1      −0.0068   0       …
    nearest in the table    1      −0.0066   0       …      one byte each: decade, and place in it

A table has fine steps near 1 and reaches down to 10⁻⁶ or 10⁻⁷, because the values of one block differ by orders of
magnitude, and the large ones matter most.
"""

from functools import cached_property
from typing import final

import torch
from torch import Tensor

BLOCK = 256
"""Values with a common scale. It divides the chunks at which parameters are cut into slices (`parallel/norms.py`), so
that a slice has the blocks, and the bits, of the whole."""

_MANTISSA_BITS = 10
"""Bits of the mantissa by which a value is looked up."""
_FIRST_EXPONENT = -25
"""Values below 2 to this power, of a scale of 1, are looked up as if they were 0: 2⁻²⁵ < 10⁻⁷ / 2."""
_SHIFT = 23 - _MANTISSA_BITS
_FIRST_CELL = (127 + _FIRST_EXPONENT) << _MANTISSA_BITS
_NUM_CELLS = (-_FIRST_EXPONENT << _MANTISSA_BITS) + 1
"""A cell: the numbers that agree in exponent and first bits of the mantissa. The last cell is that of 1."""


@final
class DynamicCode:
    """Encodes values in bytes, and decodes them, block by block.

    The table of magnitudes has 0 and, in the decade from 10⁻⁽ᵉ⁺¹⁾ to 10⁻ᵉ, 2^(b − e) values in equal steps, for
    e = 0 … b. With a sign, b = 6: one bit of the byte is the sign. Without, b = 7.

    Error: in a block whose largest magnitude is A, a value x with 10⁻⁽ᵉ⁺¹⁾ ≤ |x| / A ≤ 10⁻ᵉ is decoded with an error of
    at most ::

        A · (0.45 · 10⁻ᵉ / 2^(b − e) + 2⁻¹¹ · 10⁻ᵉ)          half a step, and what a cell of the look-up adds

    so no value of the block is off by more than 0.0076 · A (signed) or 0.0041 · A (unsigned). The largest magnitude and
    zeros are exact. Below the smallest step s = 10⁻ᵇ the error is at most s · A. Without a sign, a value that is not
    zero is never decoded as zero: it is a second moment, and steps are divided by its root.

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
        self._on_device: dict[torch.device, tuple[Tensor, Tensor]] = {}

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

    def encode(self, values: Tensor, codes: Tensor, scales: Tensor) -> None:
        """Encode flat values into bytes and a scale for each block; the last block may be shorter."""
        whole = values.numel() // BLOCK * BLOCK
        if whole:
            self._encode(values[:whole].view(-1, BLOCK), codes[:whole].view(-1, BLOCK), scales)
        if whole < values.numel():
            self._encode(values[whole:].view(1, -1), codes[whole:].view(1, -1), scales[whole // BLOCK :])

    def _encode(self, values: Tensor, codes: Tensor, scales: Tensor) -> None:
        cells, _ = self._tables(values.device)
        magnitudes = values.abs()
        scale = magnitudes.amax(1)
        scales[: len(scale)] = scale
        scale.masked_fill_(scale == 0, 1.0)
        # The bits of a positive float are in the order of its value: the first ones are the number of its cell.
        index = magnitudes.div_(scale[:, None]).view(torch.int32).bitwise_right_shift_(_SHIFT)
        index.sub_(_FIRST_CELL).clamp_(0, _NUM_CELLS - 1)
        torch.index_select(cells, 0, index.view(-1), out=codes.view(-1))
        if self.signed:
            sign = torch.bitwise_right_shift(values.view(torch.int32), 24, out=index).bitwise_and_(0x80)
            codes.bitwise_or_(sign.to(torch.uint8))
        else:
            codes.copy_(torch.maximum(codes, values > 0))

    def decode(self, codes: Tensor, scales: Tensor, out: Tensor) -> Tensor:
        """Decode bytes into flat floats, which are returned."""
        _, table = self._tables(codes.device)
        torch.index_select(table, 0, codes.to(torch.int32), out=out)
        whole = out.numel() // BLOCK * BLOCK
        out[:whole].view(-1, BLOCK).mul_(scales[: whole // BLOCK, None])
        if whole < out.numel():
            out[whole:].mul_(scales[whole // BLOCK])
        return out

    def _tables(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The code of each cell, and the value of each code."""
        if device not in self._on_device:
            bits = torch.arange(_NUM_CELLS, dtype=torch.int32).add_(_FIRST_CELL)
            centres = bits.bitwise_left_shift(_SHIFT).add_(1 << (_SHIFT - 1)).view(torch.float32).double()
            between = (self.magnitudes[1:] + self.magnitudes[:-1]) / 2
            cells = torch.bucketize(centres, between).to(torch.uint8)
            magnitudes = self.magnitudes.float()
            # −0 has a code of its own, so that decoded values have their bytes again.
            table = torch.cat((magnitudes, -magnitudes)) if self.signed else magnitudes
            self._on_device[device] = cells.to(device), table.to(device)
        return self._on_device[device]


SIGNED = DynamicCode(signed=True)
"""For momenta."""
UNSIGNED = DynamicCode(signed=False)
"""For second moments."""
