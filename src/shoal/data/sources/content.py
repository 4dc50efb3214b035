"""The bytes of a data file, plain or gzip, with an error for each kind of damage."""

import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO

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
