"""The IDX format of MNIST: a magic number, the sizes of the dimensions, the bytes of the array.

::

    00 00 08 DD   zero, zero, 08 = unsigned bytes, number of dimensions
    NN NN NN NN   size of each dimension, most significant byte first
    …             the bytes, last dimension fastest
"""

import math
import struct

import torch
from torch import Tensor

from shoal.errors import DataError

UNSIGNED_BYTE = 0x08


def decode_idx(content: bytearray, dims: int, where: str) -> Tensor:
    """The array in an IDX file of `dims` dimensions, as a uint8 tensor that is a view of `content`.

    >>> decode_idx(encode_idx(torch.tensor([3, 1], dtype=torch.uint8)), dims=1, where="labels")
    tensor([3, 1], dtype=torch.uint8)
    """
    magic = bytes((0, 0, UNSIGNED_BYTE, dims))
    if bytes(content[:4]) != magic:
        raise DataError(
            f"{where} is not an IDX file of {dims} dimension{'s' * (dims > 1)}: "
            f"it starts with 0x{content[:4].hex()}, expected 0x{magic.hex()}"
        )
    header_bytes = 4 + 4 * dims
    if len(content) < header_bytes:
        raise DataError(
            f"{where} is truncated: {len(content)} bytes, but the header alone has {header_bytes}"
        )
    sizes = struct.unpack(f">{dims}I", content[4:header_bytes])
    promised = header_bytes + math.prod(sizes)
    if len(content) != promised:
        problem = "truncated" if len(content) < promised else "too long"
        shape = " × ".join(f"{size:,}" for size in sizes)
        raise DataError(
            f"{where} is {problem}: {len(content):,} bytes, but its header ({shape}) says {promised:,}"
        )
    if 0 in sizes:
        raise DataError(f"{where} holds no samples: its header says {sizes}")
    return torch.frombuffer(content, dtype=torch.uint8, offset=header_bytes).view(sizes)


def encode_idx(array: Tensor) -> bytearray:
    """The bytes of an IDX file that holds this uint8 tensor."""
    header = bytes((0, 0, UNSIGNED_BYTE, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return bytearray(header + array.contiguous().numpy().tobytes())
