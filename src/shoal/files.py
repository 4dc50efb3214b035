"""Open files without waiting: a pipe or a device in place of a file is an error, not a hang."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import TextIO

MOST_TEXT_BYTES = 256 * 2**20
"""Larger files of settings, results and manifests are not ours."""


def open_file(path: Path) -> BufferedReader:
    """Open a regular file; an OSError for anything else."""
    return open(_open_regular(path, os.O_RDONLY), "rb")


def open_to_append(path: Path) -> TextIO:
    """Open or create a regular file to append lines; a line that a crash cut short is ended first."""
    file = open(_open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "a", encoding="utf-8")  # noqa: SIM115 (the caller closes it)
    size = os.fstat(file.fileno()).st_size
    if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
        file.write("\n")
    return file


def _open_regular(path: Path, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder, not a file", str(path))
    raise OSError(errno.EINVAL, "it is a pipe, a socket or a device, not a file", str(path))


def read_text(path: Path) -> str:
    """The text of a regular file in UTF-8."""
    with open_file(path) as file:
        if os.fstat(file.fileno()).st_size > MOST_TEXT_BYTES:
            raise OSError(errno.EFBIG, f"it is larger than {MOST_TEXT_BYTES // 2**20} MiB", str(path))
        return file.read().decode()
