"""A codec of your own: natural compression, one byte per element (Horváth et al., 2019).

Every number is rounded to a power of two, up or down at random so that the mean is the number. A byte holds the sign,
and how many powers below the largest one it is. Check it with the contract of shoal's own codecs, then train with it:

    shoal check codec examples.own_codec:Natural
    shoal train quickstart --strategy ddp --workers 2 --exchange compressed:examples.own_codec:Natural
"""

import torch
from torch import Tensor

from shoal.codecs.codec import Codec, Field, Form, Payload, generator


class Natural(Codec):
    """E‖x − decoded‖² ≤ ‖x‖² / 8; numbers more than 2¹²⁶ times smaller than the largest become 0."""

    @property
    def is_unbiased(self) -> bool:
        """Yes."""
        return True

    def fields(self, form: Form) -> tuple[Field, ...]:
        """The largest power, a floating-point number in which NaN and infinity stay visible, and the bytes."""
        return Field(form.dtype, 1), Field(torch.int8, form.numel)

    def encode(self, x: Tensor, seed: int, memory: Tensor | None = None) -> Payload:
        """A mantissa is in [0.5, 1): it is rounded up to 1 with probability 2·mantissa − 1, and down to 0.5 else."""
        mantissa, exponent = torch.frexp(x.view(-1))
        draw = torch.rand(mantissa.shape, generator=generator(seed, x.device), dtype=x.dtype, device=x.device)
        power = exponent - 1 + (draw < 2 * mantissa.abs() - 1).int()
        top = power.max().view(1) if len(power) else power.new_zeros(1)
        below = 1 + top - power
        return top.to(x.dtype), (below * (below < 128) * mantissa.sign()).to(torch.int8)

    def decode(self, payload: Payload, form: Form, seed: int) -> Tensor:
        """± 2^(top + 1 − code); code 0 is zero."""
        top, code = payload
        return torch.ldexp(code.sign().to(form.dtype), (top + 1).int() - code.abs().int()).view(form.shape)
