"""Find the files of a data set on this machine and verify them.

They are searched in the given folder, then in `$SHOAL_DATA`, then in the user's cache; in each of these in a folder
with the data set's name, in the folders that other tools create, and in the folder itself; plain or with `.gz`.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from shoal.data.sources.catalogue import CATALOGUE, Catalogue, DataFile, Entry, entry_of
from shoal.data.sources.formats import read_content
from shoal.errors import DataError


@dataclass(frozen=True)
class Holding:
    """A data set of the catalogue and its folder on this machine."""

    name: str
    sentence: str
    credit: str
    size: int
    """Bytes when unpacked."""
    folder: Path | None
    """The folder with all its files; None if there is none."""


@dataclass(frozen=True)
class FileState:
    """One file of a data set and its problem, if any."""

    name: str
    path: Path | None
    size: int
    """Expected bytes when unpacked."""
    problem: str
    """One sentence; empty if the file is identical to the published one."""


def inventory(directory: str = "", catalogue: Catalogue = CATALOGUE) -> list[Holding]:
    """All data sets of files and their folders. Checks file names only: `verify` reads the files.

    >>> [holding.name for holding in inventory()]
    ['digits', 'alice', 'mnist', 'fashion-mnist', 'cifar10']
    """
    rows: list[Holding] = []
    for entry in catalogue.values():
        paths = _complete(entry, directory)
        folder = next(iter(paths.values())).parent if paths else None
        rows.append(Holding(entry.name, entry.sentence, entry.credit, entry.size, folder))
    return rows


def find(name: str, directory: str = "", catalogue: Catalogue = CATALOGUE) -> dict[str, Path]:
    """The path of every file of a data set, by file name; a DataError if one is missing."""
    entry = entry_of(name, catalogue)
    paths = _complete(entry, directory)
    if paths:
        return paths
    for folder in folders(entry, directory):
        present = present_in(folder, entry)
        if present:
            missing = ", ".join(file.name for file in entry.files if file.name not in present)
            raise DataError(f"{folder} holds only a part of {name}: {missing} is missing", how_to_get(entry))
    searched = ", ".join(map(str, roots(directory)))
    raise DataError(f"{name} is not on this machine (searched {searched})", how_to_get(entry))


def verify(name: str, directory: str = "", catalogue: Catalogue = CATALOGUE) -> list[FileState]:
    """Read every file of a data set and compare it with the published one; problems are returned, not raised."""
    entry = entry_of(name, catalogue)
    present = _complete(entry, directory)
    for folder in folders(entry, directory):
        present = present or present_in(folder, entry)
    return [_state(file, present.get(file.name), catalogue) for file in entry.files]


def check_verified(
    name: str, states: list[FileState], directory: str = "", catalogue: Catalogue = CATALOGUE
) -> None:
    """Raise a DataError if `verify` found a problem: the data set is missing, incomplete or damaged."""
    damaged = [state.name for state in states if state.problem]
    if damaged:
        find(name, directory, catalogue)  # raises if a file is missing
        raise DataError(
            f"{name} is damaged: {', '.join(damaged)} differs from the published file",
            f"Fetch it again: shoal data fetch {name}",
        )


def check_published(file: DataFile, path: Path, data: bytearray, catalogue: Catalogue = CATALOGUE) -> None:
    """Raise a DataError unless these bytes are identical to the published file."""
    actual = hashlib.sha256(data).hexdigest()
    if actual == file.sha256:
        return
    for entry in catalogue.values():
        if any(other.sha256 == actual for other in entry.files):
            raise DataError(
                f"{path} is a file of the data set {entry.name}",
                f"Use --data {entry.name}, or keep each data set in a folder with its name.",
            )
    raise DataError(
        f"{path} is not the published file: sha256 {actual}, {len(data):,} bytes; "
        f"published: {file.sha256}, {file.size:,} bytes",
        "Delete it and fetch it again. For your own data in MNIST's format: shoal.data.load.load_idx(folder).",
    )


def how_to_get(entry: Entry) -> str:
    """How to get a data set that is missing."""
    return f"Run `shoal data fetch {entry.name}` ({entry.size / 1e6:.0f} MB). {offline_way(entry)}"


def offline_way(entry: Entry) -> str:
    """How to get a data set without a network: which files, which folder, which command."""
    if entry.archive:
        files, way = entry.archive.name, f"run `shoal data fetch {entry.name} --from FOLDER`"
    else:
        files = ", ".join(file.name for file in entry.files) + " (plain or .gz)"
        way = f"pass --data-dir FOLDER, or run `shoal data fetch {entry.name} --from FOLDER`"
    return f"Without a network: put {files} into a folder and {way}."


def roots(directory: str = "") -> list[Path]:
    """The data folders to search: the given one, $SHOAL_DATA, the user's cache.

    Searching the next one is safe, because files must be identical to the published ones. A given folder that does not
    exist is an error.
    """
    named = [Path(name).expanduser() for name in (directory, os.environ.get("SHOAL_DATA", "")) if name]
    for folder in named:
        if not folder.is_dir():
            raise DataError(
                f"data folder {folder} does not exist",
                "Check --data-dir (data.dir) and $SHOAL_DATA, or omit them to use the user's cache.",
            )
    return [*named, cache_folder()]


def cache_folder() -> Path:
    """The user's cache: $XDG_CACHE_HOME/shoal, or ~/.cache/shoal."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "shoal"


def folders(entry: Entry, directory: str = "") -> list[Path]:
    """The folders to search for the files.

    Folders with the data set's name come first, because MNIST and Fashion-MNIST have the same file names.
    """
    if entry.shipped:
        return [Path(__file__).parents[1] / entry.name]
    return [folder for root in roots(directory) for folder in folders_below(root, entry)]


def folders_below(root: Path, entry: Entry) -> list[Path]:
    """The folders of one data folder to search for the files of a data set."""
    return [root / subfolder for subfolder in (entry.name, *entry.subfolders, ".")]


def _complete(entry: Entry, directory: str) -> dict[str, Path]:
    """The files in the first folder that has all of them; empty if there is none."""
    for folder in folders(entry, directory):
        present = present_in(folder, entry)
        if len(present) == len(entry.files):
            return present
    return {}


def present_in(folder: Path, entry: Entry) -> dict[str, Path]:
    """The files of the data set in this folder; plain ones are preferred, because they load faster."""
    present: dict[str, Path] = {}
    for file in entry.files:
        for path in (folder / file.name, folder / f"{file.name}.gz"):
            if path.is_file():
                present.setdefault(file.name, path)
    return present


def _state(file: DataFile, path: Path | None, catalogue: Catalogue) -> FileState:
    problem = ""
    if path is None:
        problem = f"{file.name} is missing"
    else:
        try:
            check_published(file, path, read_content(path, limit=file.size), catalogue)
        except DataError as error:
            problem = error.message
    return FileState(file.name, path, file.size, problem)
