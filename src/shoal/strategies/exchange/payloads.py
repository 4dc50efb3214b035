"""Payloads on the wire: those of a whole bucket in one message, gathered as bytes or summed as numbers."""

from collections.abc import Sequence

import torch
from torch import Tensor

from shoal.codecs.codec import Field, Payload
from shoal.comm.group import Group, Work


class Packing:
    """Where the tensors of several payloads are in one message of the declared number of bytes.

    They are ordered by dtype, floating-point numbers first and wide before narrow, so that each is aligned without
    padding.
    """

    def __init__(self, payloads: Sequence[Sequence[Field]]) -> None:
        fields = [
            (gradient, place, field)
            for gradient, payload in enumerate(payloads)
            for place, field in enumerate(payload)
        ]
        self._fields = sorted(
            fields, key=lambda field: (not field[2].dtype.is_floating_point, -field[2].dtype.itemsize)
        )
        self._lengths = [len(payload) for payload in payloads]
        self.num_bytes = sum(field.num_bytes for _, _, field in fields)

    @classmethod
    def of(cls, payloads: Sequence[Payload]) -> "Packing":
        """The message of these payloads."""
        return cls([[Field(tensor.dtype, tensor.numel()) for tensor in payload] for payload in payloads])

    def pack(self, payloads: Sequence[Payload]) -> Tensor:
        """The message; of no payloads, an empty one."""
        if not self._fields:
            return torch.empty(0, dtype=torch.uint8)
        return torch.cat([_bytes(payloads[gradient][place]) for gradient, place, _ in self._fields])

    def unpack(self, message: Tensor) -> list[Payload]:
        """The payloads, as views of the message."""
        message = _aligned(message)
        payloads: list[list[Tensor]] = [[message] * length for length in self._lengths]
        start = 0
        for gradient, place, field in self._fields:
            payloads[gradient][place] = message[start : start + field.num_bytes].view(field.dtype)
            start += field.num_bytes
        return [tuple(payload) for payload in payloads]


class GatheredPayloads:
    """An all-gather of the payloads of several gradients: one message."""

    def __init__(self, group: Group, payloads: Sequence[Payload]) -> None:
        self._packing = Packing.of(payloads)
        message = self._packing.pack(payloads)
        self._rows = message.new_empty((group.size, message.numel()))
        self.work: Work = group.all_gather(self._rows, message)

    def received(self) -> list[list[Payload]]:
        """For each gradient, the payloads of all workers in rank order; once the work is done."""
        rows = [self._packing.unpack(row) for row in self._rows.unbind()]
        return [list(of_one) for of_one in zip(*rows, strict=True)]


class SummedPayloads:
    """An all-reduce of the workers' tensors, one message for each dtype."""

    def __init__(self, group: Group, tensors: Sequence[Tensor]) -> None:
        self._shapes = [(tensor.dtype, tensor.shape) for tensor in tensors]
        self._messages = {
            dtype: torch.cat([tensor.reshape(-1) for tensor in tensors if tensor.dtype == dtype])
            for dtype in dict.fromkeys(tensor.dtype for tensor in tensors)
        }
        self.works: list[Work] = [group.all_reduce(message) for message in self._messages.values()]

    def received(self) -> list[Tensor]:
        """The sums, in the shapes of the summands; once the works are done."""
        parts = {
            dtype: iter(message.split([shape.numel() for kind, shape in self._shapes if kind == dtype]))
            for dtype, message in self._messages.items()
        }
        return [next(parts[dtype]).view(shape) for dtype, shape in self._shapes]


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether all floating-point numbers are finite. The guard refuses gradients long before such a sum overflows."""
    sums = [
        tensor.sum(dtype=torch.float32 if tensor.itemsize < 4 else None).double()
        for tensor in tensors
        if tensor.is_floating_point()
    ]
    return not sums or bool(torch.stack(sums).isfinite().all())


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)


def _aligned(row: Tensor) -> Tensor:
    """The row at an address that every dtype can be read from."""
    return row if row.storage_offset() % 8 == 0 else row.clone()
