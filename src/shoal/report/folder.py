"""A folder of finished files: all of them are made beside their places, then renamed there, or none appears."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from shoal.errors import ConfigError


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
