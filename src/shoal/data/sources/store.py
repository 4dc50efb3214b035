"""Write a file completely or not at all: to a temporary file, verified, then renamed.

Several processes may store the same file at once: each writes its own temporary file, and the renames replace identical
files. A process that is killed leaves at most a hidden `.part` file, which a later call deletes.
"""

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

from shoal.data.sources.catalogue import Archive, DataFile
from shoal.errors import DataError

STALE_S = 24 * 3600

Progress = Callable[[str, int, int], None]
"""`progress(name, done_bytes, total_bytes)`: called while a file is written."""


def store(chunks: Iterable[bytes], where: str, file: DataFile, folder: Path, progress: Progress) -> Path:
    """Write the content into the folder under the file's name if it is identical to the published file."""
    with part_of(file.name, folder) as part:
        write_checked(chunks, where, file, part, progress)
        return part.replace(folder / file.name)


@contextmanager
def part_of(name: str, folder: Path) -> Generator[Path, None, None]:
    """The path of a temporary file, deleted on exit unless it was renamed."""
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(f".{name}.*.part"):
        with suppress(FileNotFoundError):  # another process has just renamed or deleted it
            if time.time() - leftover.stat().st_mtime > STALE_S:
                leftover.unlink()
    part = folder / f".{name}.{os.getpid()}-{secrets.token_hex(4)}.part"
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


def write_checked(
    chunks: Iterable[bytes], where: str, expected: DataFile | Archive, path: Path, progress: Progress
) -> None:
    """Write a stream to a new file; a DataError unless size and sha256 are as expected."""
    summed, size = hashlib.sha256(), 0
    with path.open("xb") as file:
        for chunk in chunks:
            file.write(chunk)
            summed.update(chunk)
            size += len(chunk)
            progress(expected.name, size, expected.size)
        file.flush()
        os.fsync(file.fileno())
    check_sum(where, expected, size, summed.hexdigest())


def check_sum(where: str, expected: DataFile | Archive, size: int, sha256: str) -> None:
    """Raise a DataError unless size and sha256 are the published ones."""
    if size < expected.size:
        raise DataError(f"{where} is truncated: {size:,} of {expected.size:,} bytes")
    if sha256 != expected.sha256:
        raise DataError(f"{where} is not the published file: sha256 {sha256}, published {expected.sha256}")
