"""The formats of published files: plain or gzip, MNIST's IDX, CIFAR-10's records; an error for each kind of damage.

IDX is a magic number, the sizes of the dimensions, the bytes of the array::

    00 00 08 DD   zero, zero, 08 = unsigned bytes, number of dimensions
    NN NN NN NN   size of each dimension, most significant byte first
    …             the bytes, last dimension fastest

CIFAR-10 is records of one byte for the label and 3 × 32 × 32 bytes for the picture.
"""

import math
import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from shoal.errors import DataError

CHUNK_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
HTML_STARTS = (b"<!doctype", b"<html", b"<head", b"<?xml")


def read_content(path: Path, limit: int | None = None) -> bytearray:
    """All bytes of a file, unpacked if it is gzip; more than `limit` bytes are an error."""
    size = 0
    try:
        with path.open("rb") as file:
            # Full size from the start: growing would cost more than reading.
            content = bytearray(limit or path.stat().st_size)
            for chunk in unpacked(chunks_of(file), str(path), limit):
                content[size : size + len(chunk)] = chunk
                size += len(chunk)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    del content[size:]
    return content


def chunks_of(file: IO[bytes]) -> Iterator[bytes]:
    """The file in chunks."""
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def unpacked(chunks: Iterable[bytes], where: str, limit: int | None = None) -> Iterator[bytes]:
    """The content of a stream, unpacked if its first bytes are those of gzip.

    A DataError that names `where` reports an empty stream, a web page, truncated or damaged gzip, and more than `limit`
    bytes of content.
    """
    stream = plausible(chunks, where)
    first = next(stream)
    whole = chain([first], stream)
    return at_most(limit, _gunzipped(whole, where) if first.startswith(GZIP_MAGIC) else whole, where)


def plausible(chunks: Iterable[bytes], where: str) -> Iterator[bytes]:
    """The same stream; an error if it is empty or a web page, which many servers send instead of an error status."""
    stream = iter(chunks)
    first = next(stream, b"")
    if not first:
        raise DataError(f"{where} is empty")
    if first.lstrip()[:16].lower().startswith(HTML_STARTS):
        raise DataError(f"{where} is a web page, not data: probably an error page of the server")
    yield first
    yield from stream


def at_most(limit: int | None, chunks: Iterable[bytes], where: str) -> Iterator[bytes]:
    """The same stream; more than `limit` bytes are an error."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if limit is not None and size > limit:
            raise DataError(f"{where} holds more than the expected {limit:,} bytes")
        yield chunk


def _gunzipped(chunks: Iterable[bytes], where: str) -> Iterator[bytes]:
    decoder = zlib.decompressobj(wbits=31)
    for chunk in chunks:
        packed = chunk
        while packed and not decoder.eof:
            try:
                # Bounded: otherwise a few bytes could become gigabytes.
                piece = decoder.decompress(packed, CHUNK_BYTES)
            except zlib.error as error:
                raise DataError(f"{where} is damaged: cannot unpack its gzip data ({error})") from error
            packed = decoder.unconsumed_tail
            yield piece
    if not decoder.eof:
        raise DataError(f"{where} is truncated: its gzip data end too early")


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
