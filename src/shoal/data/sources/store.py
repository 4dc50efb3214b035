"""Write a file whole or not at all: beside its place, checked, and then renamed into it.

Any number of processes may store the same file at once: each writes a file of its own, and the renames replace equals
by equals. A process that is killed leaves at most a hidden `.part` file, which a later one sweeps away.
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
"""Called as a file grows: its name, bytes so far, bytes in all."""


def store(chunks: Iterable[bytes], where: str, file: DataFile, folder: Path, progress: Progress) -> Path:
    """Write the content into the folder under the file's name, if it is what was published."""
    with part_of(file.name, folder) as part:
        write_checked(chunks, where, file, part, progress)
        return part.replace(folder / file.name)


@contextmanager
def part_of(name: str, folder: Path) -> Generator[Path, None, None]:
    """A path for a file in the making, which is gone afterwards if nobody renamed it."""
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(f".{name}.*.part"):
        with suppress(FileNotFoundError):  # another process finished it in between
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
    """Write a stream to a new file, and raise a DataError unless size and sha256 are the expected ones."""
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
    """Raise a DataError unless size and sum are those that were published."""
    if size < expected.size:
        raise DataError(f"{where} is truncated: {size:,} of {expected.size:,} bytes")
    if sha256 != expected.sha256:
        raise DataError(f"{where} is not the published file: sha256 {sha256}, published {expected.sha256}")
