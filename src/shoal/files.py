"""Open files for reading without waiting: a pipe or a device in place of a file is an error, not a hang."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

MOST_TEXT_BYTES = 256 * 2**20
"""Larger files of settings, results and manifests are not ours."""


def open_file(path: Path) -> BufferedReader:
    """Open a regular file; an OSError for anything else."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "it is a folder, not a file", str(path))
        raise OSError(errno.EINVAL, "it is a pipe, a socket or a device, not a file", str(path))
    return open(descriptor, "rb")


def read_text(path: Path, most_bytes: int = MOST_TEXT_BYTES) -> str:
    """The text of a regular file in UTF-8."""
    with open_file(path) as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise OSError(errno.EFBIG, f"it is larger than {most_bytes // 2**20} MiB", str(path))
        return file.read().decode()
