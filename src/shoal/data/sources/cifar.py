"""The binary format of CIFAR-10: records of one byte for the label and 3 × 32 × 32 bytes for the picture."""

import torch
from torch import Tensor

from shoal.errors import DataError

SHAPE = (3, 32, 32)
RECORD_BYTES = 1 + 3 * 32 * 32


def decode_cifar(content: bytearray, where: str) -> tuple[Tensor, Tensor]:
    """Pictures [records, 3, 32, 32] and labels [records] of one file, views of `content`.

    >>> pictures, labels = decode_cifar(bytearray([7]) + bytearray(3072), "one black picture")
    >>> pictures.shape, labels
    (torch.Size([1, 3, 32, 32]), tensor([7], dtype=torch.uint8))
    """
    if not content or len(content) % RECORD_BYTES:
        raise DataError(
            f"{where} is truncated or not CIFAR-10's binary format: "
            f"{len(content):,} bytes are not a whole number of records of {RECORD_BYTES:,}"
        )
    records = torch.frombuffer(content, dtype=torch.uint8).view(-1, RECORD_BYTES)
    return records[:, 1:].unflatten(1, SHAPE), records[:, 0]
