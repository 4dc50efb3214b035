"""Files opened with care: nothing waits for a pipe or a device, and nothing is written through a symbolic link."""

import errno
import os
import shutil
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from io import BufferedReader, BufferedWriter
from pathlib import Path

MOST_TEXT_BYTES = 256 * 2**20
"""Larger files of settings, results and manifests are not ours."""


def open_file(path: Path) -> BufferedReader:
    """Open a regular file; an OSError for anything else."""
    return open(_open_regular(path, os.O_RDONLY), "rb")


def open_to_append(path: Path) -> BufferedWriter:
    """Open or create a regular file to append to; an OSError for a link."""
    return open(_open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW), "ab")


def open_new(path: Path) -> BufferedWriter:
    """Create a file; an old one of its name is deleted, and so is a link."""
    path.unlink(missing_ok=True)
    return open(_open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")


def make_folder(path: Path) -> None:
    """Make a folder unless it is there; an OSError for a link to one."""
    path.mkdir(exist_ok=True)
    if path.is_symlink():
        raise _is_link(path)


def refuse_links(paths: Iterable[Path]) -> None:
    """An OSError for the first path that is a link."""
    for path in paths:
        if path.is_symlink():
            raise _is_link(path)


def _is_link(path: Path) -> OSError:
    return OSError(errno.ELOOP, "it is a symbolic link, and nothing is written through one", str(path))


def _open_regular(path: Path, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise _is_link(path) from None
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder, not a file", str(path))
    raise OSError(errno.EINVAL, "it is a pipe, a socket or a device, not a file", str(path))


def temporary_beside(path: Path) -> Path:
    """A name for what this process renames to `path` when it is complete, or for what was `path` and is deleted."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


@contextmanager
def complete_file(path: Path) -> Generator[BufferedWriter]:
    """A new file that is called `path` once everything is in it; an error leaves an old one as it was."""
    beside = temporary_beside(path)
    try:
        with open_new(beside) as file:
            yield file
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def discard(path: Path) -> None:
    """Delete a file or a folder under another name: a folder that has its own name has all its files."""
    beside = temporary_beside(path)
    delete(beside)
    path.rename(beside)
    flush(path.parent)
    delete(beside)


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder; it has its name once it has all its files."""
    beside = temporary_beside(target)
    delete(beside)
    shutil.copytree(source, beside)
    beside.rename(target)


def delete(path: Path) -> None:
    """Delete a file, a link or a folder as far as possible; what is not there is no error."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_text(path: Path) -> str:
    """The text of a regular file in UTF-8."""
    with open_file(path) as file:
        if os.fstat(file.fileno()).st_size > MOST_TEXT_BYTES:
            raise OSError(errno.EFBIG, f"it is larger than {MOST_TEXT_BYTES // 2**20} MiB", str(path))
        return file.read().decode()
