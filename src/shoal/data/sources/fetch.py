"""Bring the files of a data set to this machine: from mirrors, or from a folder or an archive that is already here.

Nothing is believed for where it comes from: a file is kept only if its sha256 is the published one.
"""

import hashlib
import http.client
import os
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from shoal.data.sources.catalogue import CATALOGUE, Archive, Catalogue, DataFile, Entry, entry_of
from shoal.data.sources.content import at_most, chunks_of, plausible, unpacked
from shoal.data.sources.files import cache_folder, folders_below, offline_way, present_in, verify
from shoal.data.sources.store import Progress, check_sum, part_of, store, write_checked
from shoal.errors import DataError

NETWORK_CHUNK_BYTES = 1 << 16
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Fetched:
    """One file that is now here."""

    name: str
    path: Path
    source: str
    """An address, a path, or "already here"."""


@dataclass(frozen=True)
class Errand:
    """What is to be brought where."""

    entry: Entry
    wanted: tuple[DataFile, ...]
    folder: Path
    progress: Progress
    timeout_s: float


def no_progress(name: str, done_bytes: int, total_bytes: int) -> None:
    """Tell nobody."""


def fetch(
    name: str,
    from_dir: str | None = None,
    progress: Progress = no_progress,
    *,
    directory: str = "",
    mirrors: Sequence[str] | None = None,
    timeout_s: float = TIMEOUT_S,
    catalogue: Catalogue = CATALOGUE,
) -> list[Fetched]:
    """Get the files of a data set that are not here yet, or are damaged; tell where each came from.

    `from_dir` holds the files (plain or .gz), or the archive; without it the mirrors are tried in turn. They go
    into the data set's own folder in `directory`, else in $SHOAL_DATA, else in the user's cache, unpacked, each
    whole or not at all. To call it from many processes at once is safe.
    """
    entry = entry_of(name, catalogue)
    if entry.shipped:
        states = verify(name, catalogue=catalogue)
        return [Fetched(state.name, state.path, "already here") for state in states if state.path]
    folder = target_folder(entry, directory)
    try:
        here = [file for file in entry.files if _is_here(file, folder)]
        wanted = tuple(file for file in entry.files if file not in here)
        errand = Errand(entry, wanted, folder, progress, timeout_s)
        if not wanted:
            brought = []
        elif from_dir is not None:
            brought = _from_folder(errand, Path(from_dir).expanduser())
        else:
            brought = _from_mirrors(errand, entry.mirrors if mirrors is None else mirrors)
    except OSError as error:
        raise DataError(
            f"cannot store {name} in {folder}: {error.strerror or error} ({error.filename or folder})",
            "Let $SHOAL_DATA name a folder that can be written and has room.",
        ) from error
    return [*(Fetched(file.name, folder / file.name, "already here") for file in here), *brought]


def target_folder(entry: Entry, directory: str = "") -> Path:
    """Where the files of a data set are put."""
    named = directory or os.environ.get("SHOAL_DATA", "")
    return (Path(named).expanduser() if named else cache_folder()) / entry.name


def _is_here(file: DataFile, folder: Path) -> bool:
    path = folder / file.name
    return path.is_file() and path.stat().st_size == file.size and _sha256(path) == file.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ── from a folder ────────────────────────────────────────────────────────────────────────────────────────


def _from_folder(errand: Errand, source: Path) -> list[Fetched]:
    """From files that lie somewhere below `source`, or from the archive in it."""
    entry, archive = errand.entry, errand.entry.archive
    if not source.is_dir():
        raise DataError(f"there is no folder {source}", offline_way(entry))
    for place in folders_below(source, entry):
        present = present_in(place, entry)
        if all(file.name in present for file in errand.wanted):
            return [_from_file(errand, file, present[file.name]) for file in errand.wanted]
    for place in folders_below(source, entry):
        path = place / (archive.name if archive else "")
        if archive and path.is_file():
            check_sum(str(path), archive, path.stat().st_size, _sha256(path))
            return _from_archive(errand, archive, path, str(path))
    names = ", ".join(file.name for file in errand.wanted)
    raise DataError(f"{source} does not hold {names}", offline_way(entry))


def _from_file(errand: Errand, file: DataFile, path: Path) -> Fetched:
    with path.open("rb") as opened:
        content = unpacked(chunks_of(opened), str(path), limit=file.size)
        stored = store(content, str(path), file, errand.folder, errand.progress)
    return Fetched(file.name, stored, str(path))


def _from_archive(errand: Errand, archive: Archive, path: Path, where: str) -> list[Fetched]:
    """Read the wanted members and no others: what an archive calls `../evil`, or a link, is never looked at."""
    members = {f"{archive.folder}/{file.name}": file for file in errand.wanted}
    fetched: list[Fetched] = []
    try:
        with tarfile.open(path, "r:*") as tar:
            for member in tar:
                file = members.get(member.name)
                opened = tar.extractfile(member) if file and member.isreg() else None
                if file and opened:
                    named = f"{member.name} in {where}"
                    content = at_most(file.size, chunks_of(opened), named)
                    stored = store(content, named, file, errand.folder, errand.progress)
                    fetched.append(Fetched(file.name, stored, where))
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"{where} is damaged: it does not unpack ({error})") from error
    missing = {file.name for file in errand.wanted} - {one.name for one in fetched}
    if missing:
        raise DataError(f"{where} does not hold {', '.join(sorted(missing))} in {archive.folder}")
    return fetched


# ── from mirrors ─────────────────────────────────────────────────────────────────────────────────────────


def _from_mirrors(errand: Errand, mirrors: Sequence[str]) -> list[Fetched]:
    """The archive, or each file, from the first mirror that gives what was published."""
    archive = errand.entry.archive
    if archive:
        addresses = [mirror + archive.name for mirror in mirrors]
        return _first_that_works(errand, addresses, partial(_download_archive, errand, archive))
    fetched: list[Fetched] = []
    for file in errand.wanted:
        addresses = [f"{mirror}{file.name}.gz" for mirror in mirrors]
        fetched += _first_that_works(errand, addresses, partial(_download_file, errand, file))
    return fetched


def _first_that_works(
    errand: Errand, addresses: Sequence[str], get: Callable[[str], list[Fetched]]
) -> list[Fetched]:
    problems: list[str] = []
    for address in addresses:
        try:
            return get(address)
        except DataError as error:
            problems.append(error.message)
    raise DataError(
        f"no mirror gave {errand.entry.name}: {'; '.join(problems) or 'none is known'}",
        offline_way(errand.entry),
    )


def _download_file(errand: Errand, file: DataFile, address: str) -> list[Fetched]:
    content = unpacked(_download(address, errand.timeout_s), address, limit=file.size)
    return [Fetched(file.name, store(content, address, file, errand.folder, errand.progress), address)]


def _download_archive(errand: Errand, archive: Archive, address: str) -> list[Fetched]:
    chunks = plausible(_download(address, errand.timeout_s), address)
    with part_of(archive.name, errand.folder) as part:
        write_checked(at_most(archive.size, chunks, address), address, archive, part, errand.progress)
        return _from_archive(errand, archive, part, address)


def _download(address: str, timeout_s: float) -> Iterator[bytes]:
    """What lies at an address, in pieces; every way in which that can fail is a DataError."""
    request = urllib.request.Request(address, headers={"User-Agent": "shoal"})
    received = 0
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            promised = int(response.headers.get("Content-Length") or 0)
            while chunk := response.read(NETWORK_CHUNK_BYTES):
                received += len(chunk)
                yield chunk
    except urllib.error.HTTPError as error:
        raise DataError(f"{address} answers {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise DataError(f"{address} cannot be reached ({error.reason})") from error
    except (OSError, http.client.HTTPException) as error:
        raise DataError(f"{address} broke off after {received:,} bytes ({error})") from error
    if received < promised:
        raise DataError(f"{address} broke off after {received:,} of {promised:,} bytes")
