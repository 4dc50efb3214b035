"""Bytes to floats of mean 0 and variance 1, with the same bits on every device."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SCALE_BITS = 16


@dataclass(frozen=True, eq=False)
class Affine:
    """x ↦ scale·x + shift for each channel: (x/255 − mean) / std in one multiplication and one addition.

    The scale is rounded to 16 bits, a relative change below 2e-5; the standard deviations are published to four
    digits. A byte times such a scale fits into float32's 24 bits, so the product is exact and only the sum is rounded.
    Every device and every kernel, fused or not, therefore computes the same bits, at any position in a batch.

    >>> affine = Affine.normalising(torch.tensor([0.5]), torch.tensor([0.25]), dims=3)
    >>> affine(torch.tensor([[[[0, 255]]]], dtype=torch.uint8))
    tensor([[[[-2.0000,  2.0000]]]])
    """

    scale: Tensor
    shift: Tensor
    one_scale: float | None
    """The scale, if it is the same for all channels."""

    @classmethod
    def normalising(cls, mean: Tensor, std: Tensor, dims: int) -> "Affine":
        """For inputs of `dims` dimensions; those of three have channels first, others have one."""
        per_channel = (-1, 1, 1) if dims == 3 else (1,) * dims
        scales = [rounded(1 / (255 * value), SCALE_BITS) for value in std.tolist()]
        scale = torch.tensor(scales, device=mean.device)
        shift = -255 * mean * scale
        one_scale = scales[0] if len(set(scales)) == 1 else None
        return cls(scale.view(per_channel), shift.view(per_channel), one_scale)

    def __call__(self, inputs: Tensor) -> Tensor:
        """The uint8 batch as float32."""
        scale, shift = self.scale, self.shift
        if shift.device != inputs.device:
            scale, shift = scale.to(inputs.device), shift.to(inputs.device)
        if self.one_scale is not None:
            # One pass; addcmul would be slower than two.
            return torch.add(shift, inputs.float(), alpha=self.one_scale)
        return inputs.float().mul_(scale).add_(shift)


def rounded(value: float, bits: int) -> float:
    """The nearest number with this many significant bits.

    >>> rounded(1 / 3, 4)
    0.34375
    """
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(mantissa, bits)), exponent - bits)
