"""Half precision: float16 or bfloat16 instead of float32."""

from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.codecs.codec import Field, Form, Linear


@dataclass(frozen=True)
class Half(Linear):
    """Rounds every element to a 16-bit format; the workers sum in that format.

    Relative error of each rounding: 2⁻¹¹ (fp16), 2⁻⁸ (bf16); W − 1 additions round once more each. fp16 has a short
    range: elements below 6·10⁻⁸ become 0, and elements above 65504 / W become that, so that no sum is infinite. bf16
    has the range of float32. 2 bytes per element.

    Micikevicius et al., Mixed Precision Training, 2018.
    """

    dtype: torch.dtype

    def fields(self, form: Form) -> tuple[Field, ...]:
        """All elements, in 16 bits."""
        return (Field(self.dtype, form.numel),)

    def express(self, x: Tensor, basis: Tensor | None, workers: int) -> Tensor:
        """The rounded elements."""
        del basis
        flat = x.reshape(-1)
        if self.dtype is torch.float16:
            # A little less than the quotient: rounding must not exceed it.
            most = torch.finfo(torch.float16).max / workers * (1 - 2**-9)
            flat = flat.clamp(-most, most)
        return flat.to(self.dtype, copy=True)

    def reconstruct(self, coordinates: Tensor, basis: Tensor | None, out: Tensor) -> None:
        """The elements in their own precision."""
        del basis
        out.copy_(coordinates.view(out.shape))
