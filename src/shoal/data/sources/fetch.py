"""Fetch the files of a data set: from mirrors, from a local folder, or from a local archive.

A file is kept only if its sha256 is the published one, whatever its source. It is written to a temporary file,
verified, then renamed: completely or not at all. Several processes may store the same file at once, since the renames
replace identical files. A process that is killed leaves at most a hidden `.part` file, which a later call deletes.
"""

import hashlib
import http.client
import os
import secrets
import tarfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from shoal.data.sources.catalogue import CATALOGUE, Archive, Catalogue, DataFile, Entry, entry_of
from shoal.data.sources.files import cache_folder, folders_below, offline_way, present_in, verify
from shoal.data.sources.formats import at_most, chunks_of, plausible, unpacked
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
    chunks: Iterable[bytes], where: str, expected: DataFile, path: Path, progress: Progress
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


def check_sum(where: str, expected: DataFile, size: int, sha256: str) -> None:
    """Raise a DataError unless size and sha256 are the published ones."""
    if size < expected.size:
        raise DataError(f"{where} is truncated: {size:,} of {expected.size:,} bytes")
    if sha256 != expected.sha256:
        raise DataError(f"{where} is not the published file: sha256 {sha256}, published {expected.sha256}")


NETWORK_CHUNK_BYTES = 1 << 16
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Fetched:
    """One file that is now on this machine."""

    name: str
    path: Path
    source: str
    """A URL, a path, or "already here"."""


@dataclass(frozen=True)
class FetchTask:
    """Which files to fetch, and where to store them."""

    entry: Entry
    wanted: tuple[DataFile, ...]
    folder: Path
    progress: Progress
    timeout_s: float


def fetch(
    name: str,
    from_dir: str | None = None,
    progress: Progress = lambda name, done_bytes, total_bytes: None,
    *,
    directory: str = "",
    mirrors: Sequence[str] | None = None,
    timeout_s: float = TIMEOUT_S,
    catalogue: Catalogue = CATALOGUE,
) -> list[Fetched]:
    """Fetch the files of a data set that are missing or damaged; returns each file and its source.

    `from_dir` contains the files (plain or .gz) or the archive; without it the mirrors are tried in turn. Files are
    stored unpacked in a folder with the data set's name, in `directory`, else in $SHOAL_DATA, else in the user's cache.
    Each is written completely or not at all. Several processes may call this at once.
    """
    entry = entry_of(name, catalogue)
    if entry.shipped:
        states = verify(name, catalogue=catalogue)
        return [Fetched(state.name, state.path, "already here") for state in states if state.path]
    named = directory or os.environ.get("SHOAL_DATA", "")
    folder = (Path(named).expanduser() if named else cache_folder()) / entry.name
    try:
        here = [file for file in entry.files if _is_here(file, folder / file.name)]
        wanted = tuple(file for file in entry.files if file not in here)
        task = FetchTask(entry, wanted, folder, progress, timeout_s)
        if not wanted:
            brought = []
        elif from_dir is not None:
            brought = _from_folder(task, Path(from_dir).expanduser())
        else:
            brought = _from_mirrors(task, entry.mirrors if mirrors is None else mirrors)
    except OSError as error:
        raise DataError(
            f"cannot store {name} in {folder}: {error.strerror or error} ({error.filename or folder})",
            "Set $SHOAL_DATA to a folder that is writable and has enough space.",
        ) from error
    return [*(Fetched(file.name, folder / file.name, "already here") for file in here), *brought]


def _is_here(file: DataFile, path: Path) -> bool:
    return path.is_file() and path.stat().st_size == file.size and _sha256(path) == file.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ── from a folder ────────────────────────────────────────────────────────────────────────────────────────


def _from_folder(task: FetchTask, source: Path) -> list[Fetched]:
    """From files in `source` or in one of its known subfolders, or from the archive there."""
    entry, archive = task.entry, task.entry.archive
    if not source.is_dir():
        raise DataError(f"folder {source} does not exist", offline_way(entry))
    for place in folders_below(source, entry):
        present = present_in(place, entry)
        if all(file.name in present for file in task.wanted):
            fetched: list[Fetched] = []
            for file in task.wanted:
                path = present[file.name]
                with path.open("rb") as opened:
                    content = unpacked(chunks_of(opened), str(path), limit=file.size)
                    stored = store(content, str(path), file, task.folder, task.progress)
                fetched.append(Fetched(file.name, stored, str(path)))
            return fetched
    for place in folders_below(source, entry):
        path = place / (archive.name if archive else "")
        if archive and path.is_file():
            check_sum(str(path), archive, path.stat().st_size, _sha256(path))
            return _from_archive(task, archive, path, str(path))
    names = ", ".join(file.name for file in task.wanted)
    raise DataError(f"{source} does not hold {names}", offline_way(entry))


def _from_archive(task: FetchTask, archive: Archive, path: Path, where: str) -> list[Fetched]:
    """Read only the wanted members: links and paths such as `../evil` are ignored."""
    members = {f"{archive.folder}/{file.name}": file for file in task.wanted}
    fetched: list[Fetched] = []
    try:
        with tarfile.open(path, "r:*") as tar:
            for member in tar:
                file = members.get(member.name)
                opened = tar.extractfile(member) if file and member.isreg() else None
                if file and opened:
                    named = f"{member.name} in {where}"
                    content = at_most(file.size, chunks_of(opened), named)
                    stored = store(content, named, file, task.folder, task.progress)
                    fetched.append(Fetched(file.name, stored, where))
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"{where} is damaged: cannot unpack it ({error})") from error
    missing = {file.name for file in task.wanted} - {one.name for one in fetched}
    if missing:
        raise DataError(f"{where} does not hold {', '.join(sorted(missing))} in {archive.folder}")
    return fetched


# ── from mirrors ─────────────────────────────────────────────────────────────────────────────────────────


def _from_mirrors(task: FetchTask, mirrors: Sequence[str]) -> list[Fetched]:
    """The archive, or each file, from the first mirror that has the published one."""
    archive = task.entry.archive
    if archive:
        addresses = [mirror + archive.name for mirror in mirrors]
        return _first_that_works(task, addresses, partial(_download_archive, task, archive))
    fetched: list[Fetched] = []
    for file in task.wanted:
        addresses = [f"{mirror}{file.name}.gz" for mirror in mirrors]
        fetched += _first_that_works(task, addresses, partial(_download_file, task, file))
    return fetched


def _first_that_works(
    task: FetchTask, addresses: Sequence[str], get: Callable[[str], list[Fetched]]
) -> list[Fetched]:
    problems: list[str] = []
    for address in addresses:
        try:
            return get(address)
        except DataError as error:
            problems.append(error.message)
    raise DataError(
        f"cannot fetch {task.entry.name} from any mirror: {'; '.join(problems) or 'no mirror is known'}",
        offline_way(task.entry),
    )


def _download_file(task: FetchTask, file: DataFile, address: str) -> list[Fetched]:
    content = unpacked(_download(address, task.timeout_s), address, limit=file.size)
    return [Fetched(file.name, store(content, address, file, task.folder, task.progress), address)]


def _download_archive(task: FetchTask, archive: Archive, address: str) -> list[Fetched]:
    chunks = plausible(_download(address, task.timeout_s), address)
    with part_of(archive.name, task.folder) as part:
        write_checked(at_most(archive.size, chunks, address), address, archive, part, task.progress)
        return _from_archive(task, archive, part, address)


def _download(address: str, timeout_s: float) -> Iterator[bytes]:
    """The content of a URL in chunks; every failure is a DataError."""
    request = urllib.request.Request(address, headers={"User-Agent": "shoal"})
    received = 0
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            promised = int(response.headers.get("Content-Length") or 0)
            while chunk := response.read(NETWORK_CHUNK_BYTES):
                received += len(chunk)
                yield chunk
    except urllib.error.HTTPError as error:
        raise DataError(f"{address}: HTTP {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise DataError(f"cannot reach {address} ({error.reason})") from error
    except (OSError, http.client.HTTPException) as error:
        raise DataError(f"{address}: connection lost after {received:,} bytes ({error})") from error
    if received < promised:
        raise DataError(f"{address}: connection lost after {received:,} of {promised:,} bytes")
