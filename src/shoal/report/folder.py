"""The folder of a report: claimed before anything runs, filled at the end with all of its files or with none."""

import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import chain, count
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from shoal.errors import ConfigError
from shoal.report.index import REPORTS, write_index


def report_folder(out: str, name: str) -> Path:
    """The folder that the user asked for, or one with this name and the time."""
    return Path(out or f"{REPORTS}/{name}-{datetime.now():%Y%m%d-%H%M%S}")


def free_beside(folder: Path) -> Path:
    """The folder, or NAME-2, NAME-3, …: the first that is free."""
    names = (folder.parent / f"{folder.resolve().name}-{number}" for number in count(2))
    return next(path for path in chain([folder], names) if not path.exists() or not any(path.iterdir()))


@contextmanager
def claimed(folder: Path, whole: bool = False) -> Generator[None]:
    """Make the folder before anything runs. A folder in use is refused; after an error an empty one is removed.

    When the report is written, the list of all reports is written again.

    With `whole` it is removed with all that is in it: runs of code that failed are of no use to a later report.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError(f"the folder {folder} is not empty", "Choose another one with --out.")
        with TemporaryDirectory(dir=folder):
            pass  # it can be written into
    except OSError as error:
        raise ConfigError(
            f"cannot write the report folder {folder}: {error.strerror}", "Choose another one with --out."
        ) from None
    try:
        yield
    except BaseException as error:
        if whole and isinstance(error, Exception):
            shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            folder.rmdir()
        raise
    write_index(folder)


def write_files(folder: Path, files: Mapping[PurePosixPath, str | bytes]) -> None:
    """Write files into a folder, in this order: the last one, the report itself, appears when all others are there.

    An error, or Ctrl-C while they are being made, leaves none of them behind.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder))
    except OSError as error:
        raise ConfigError(
            f"cannot write into {folder}: {error.strerror}", "Choose another folder with --out."
        ) from None
    try:
        for name, content in files.items():
            path = beside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        for name in files:
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            (beside / name).replace(place)
    except OSError as error:
        # The system names no file where a write failed, and not its opening.
        raise ConfigError(
            f"cannot write {error.filename or f'into {folder}'}: {error.strerror}", "Is the disk full?"
        ) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
