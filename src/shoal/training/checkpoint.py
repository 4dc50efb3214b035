"""Checkpoints: each worker writes what it owns, a manifest binds the files, one rename makes them a checkpoint.

Saving: `step-000150.tmp/` gets a file of tensors from each worker that owns any, then `manifest.json` with their sha256
and sizes, each flushed to disk; then the folder is renamed and its parent flushed. A crash at any moment leaves the
previous checkpoint as it was. Deleting: a checkpoint is renamed first, so a folder with its name has all its files.
Where workers do not share a disk (`disks/`), each disk gets the files of its workers, copies of the previous disk's and
the manifest; the folder is renamed on all disks once all of them have confirmed what they keep.
Loading: a checkpoint counts when the manifest matches its own sha256 and the run's id, its values are possible and its
files match it.
The latest is found by looking, not by a file that can be wrong. Newer checkpoints that cannot be used are reported.
"""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from shoal.comm.agree import gather_texts, share_text
from shoal.comm.alone import alone
from shoal.comm.group import Group
from shoal.errors import CheckpointError, ConfigError
from shoal.events.folder import RunFolder, record_sha256
from shoal.files import delete, discard, flush, make_folder, open_file, open_new, read_text
from shoal.strategies.pieces.piece import Piece, Place
from shoal.training.disks.disks import Disks
from shoal.training.disks.transfer import carry_out, to_next_disk
from shoal.training.progress import Progress
from shoal.training.weights import write_header, write_tensor

FORMAT = 2
READABLE = (1, 2)
"""In format 1 rank 0 wrote everything, and no tensor was divided."""
MANIFEST = "manifest.json"


def tensors_of(rank: int) -> str:
    """The name of the file that a worker writes."""
    return f"rank{rank}.safetensors"


def name_of(step: int) -> str:
    """The name of the checkpoint of a step."""
    return f"step-{step:06d}"


class SavedPieces(Mapping[str, Tensor]):
    """The whole tensors of a checkpoint by name, on the host; each is read, and put together, when it is asked for."""

    def __init__(self, path: Path, files: Sequence[str], parts: Mapping[str, Mapping[str, Any]]) -> None:
        self._path = path
        self._opened: dict[str, Any] = {name: safe_open(path / name, framework="pt") for name in files}
        self._found: dict[str, list[tuple[Any, Place | None]]] = {}
        for name, file in self._opened.items():
            for tensor in file.keys():  # noqa: SIM118 (no mapping)
                part = parts.get(name, {}).get(tensor)
                place = None if part is None else Place.from_record(part)
                self._found.setdefault(tensor, []).append((file, place))

    def __getitem__(self, name: str) -> Tensor:
        found = self._found[name]
        first, place = found[0]
        if place is None:
            return first.get_tensor(name)
        parts = [(file.get_tensor(name), place) for file, place in found if place is not None]
        whole = torch.empty(place.shape, dtype=parts[0][0].dtype)
        if sum(part.numel() for part, _ in parts) != whole.numel():
            raise CheckpointError(f"{self._path} lacks a part of '{name}' {place.shape}")
        for part, where in parts:
            where.write(whole, part)
        return whole

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint."""

    path: Path
    progress: Progress
    files: tuple[str, ...] = (tensors_of(0),)
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """The places of divided tensors in their wholes, by file and name."""

    passed_over: tuple[str, ...] = ()
    """Faults of newer checkpoints, which are not used."""

    @property
    def fallback(self) -> str:
        """The sentence about newer checkpoints that cannot be used; empty if this is the newest."""
        faults = "; ".join(self.passed_over)
        return f"{faults}: step {self.progress.step} is used instead ({self.path})" if faults else ""

    def pieces(self) -> SavedPieces:
        """The whole tensors, by name."""
        try:
            return SavedPieces(self.path, self.files, self.parts)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"cannot read the tensors of {self.path}: {error!r}") from None


def save(
    folder: Path,
    pieces: Sequence[Piece],
    progress: Progress,
    keep: int,
    group: Group | None = None,
    run_id: str = "",
    disks: Disks | None = None,
) -> Path:
    """Write `folder/step-…`, then delete all but the newest `keep` and the best; on an error all older ones stay.

    A collective of the group's workers, each with the pieces it holds. An error on one of them is raised on all.
    `run_id` is in the settings of the run, in the parent of `folder`; without `disks` all workers share one.
    """
    group = group or alone()
    disks = disks or Disks.one(group.size)
    is_keeper = disks.keeps(group.rank)
    final = folder / name_of(progress.step)
    beside = folder / f"{final.name}.tmp"
    owned = [piece for piece in pieces if piece.is_saved]
    if not disks.is_one:  # one manifest for all disks; each worker has measured its own seconds
        progress = Progress(**json.loads(share_text(group, json.dumps(asdict(progress)))))
    all_succeed = partial(_all_succeed, group, disks, final, sum(piece.tensor.nbytes for piece in owned))

    def copy_to_next_disk(entries: Sequence[Mapping[str, Any]]) -> None:
        files = [
            (entry["rank"], beside / tensors_of(entry["rank"]), entry["bytes"], entry["sha256"])
            for entry in entries
        ]
        carry_out(group, to_next_disk(disks, files))
        if is_keeper:
            _write_manifest(beside, progress, entries, run_id, disks)

    def commit(entries: Sequence[Mapping[str, Any]]) -> None:
        if disks.is_one:
            _write_manifest(beside, progress, entries, run_id, disks)
        with contextlib.suppress(FileNotFoundError):  # only a damaged one, or another run's, can be there
            discard(final)
        beside.rename(final)
        flush(folder)

    # Saved before, by this run or by the one it resumes: the state is the same.
    is_new = is_keeper and not _is_whole(final, disks, group.rank)
    if not any(gather_texts(group, "new" if is_new else "")):
        return final
    try:
        all_succeed(lambda: _prepare(beside) if is_keeper else None)
        written = all_succeed(lambda: _write_tensors(beside, group.rank, owned) if owned else None)
        entries = [entry for entry in written if entry]
        if not disks.is_one:
            all_succeed(lambda: copy_to_next_disk(entries))
        all_succeed(lambda: commit(entries) if is_keeper else None)
    except BaseException:  # also a second Ctrl-C
        if is_keeper:
            delete(beside)
        raise
    if is_keeper:
        for old in by_age(folder)[keep:]:
            if old.name != name_of(progress.best_step):
                with contextlib.suppress(OSError):
                    discard(old)
    return final


def _all_succeed(group: Group, disks: Disks, final: Path, needed: int, work: Callable[[], Any]) -> list[Any]:
    """Do one phase of a save on every worker; what each returned, or the first error, on all."""
    try:
        answer = {"done": work()}
    except (OSError, SafetensorError) as error:
        answer = {"error": f"({needed / 2**20:.1f} MiB needed, {_free(final.parent)} free): {error}"}
    answers = [json.loads(text) for text in gather_texts(group, json.dumps(answer))]
    for rank, each in enumerate(answers):
        if "error" in each:
            whose = f"rank {rank} " if disks.is_one else f"{disks.name_of(rank)} "
            raise CheckpointError(
                f"{whose * (group.size > 1)}cannot save {final} {each['error']}",
                "The checkpoints before it are untouched.",
            )
    return [each["done"] for each in answers]


def _prepare(beside: Path) -> None:
    """Make the empty folder of a checkpoint that is being written; others, left by a crash, are deleted."""
    folder = beside.parent
    if not folder.parent.exists():
        raise FileNotFoundError(f"{folder.parent} was deleted or moved during the run")
    make_folder(folder)
    for left in folder.glob("*.tmp"):
        delete(left)
    beside.mkdir()


def latest(folder: Path, check: Callable[[Progress], None] = lambda progress: None) -> Checkpoint:
    """The newest checkpoint that verifies and whose progress passes `check`; `passed_over` names newer ones."""
    faults: list[str] = []
    for path in by_age(folder):
        try:
            found = verify(path)
            with _naming(path / MANIFEST):
                check(found.progress)
            return replace(found, passed_over=tuple(faults))
        except CheckpointError as error:
            faults.append(error.message)
    if faults:
        raise CheckpointError(f"no checkpoint in {folder} can be used: {'; '.join(faults)}")
    raise CheckpointError(f"{folder} holds no checkpoint", "Start the run again without --resume.")


def best(folder: Path) -> Checkpoint:
    """The checkpoint of the best epoch on the validation set, which the newest checkpoint names."""
    newest = latest(folder)
    step = newest.progress.best_step
    if not step:
        raise CheckpointError(
            f"{folder} has no best checkpoint: no epoch was validated before step {newest.progress.step}",
            "Hold out a validation set: --validation 0.1.",
        )
    return verify(folder / name_of(step))


def named(folder: Path, name: str) -> Checkpoint:
    """The checkpoint that a user names: best, last, a step, or the folder of one."""
    if name in ("best", "last"):
        return best(folder) if name == "best" else latest(folder)
    path = folder / (name_of(int(name)) if name.isascii() and name.isdigit() else name)
    if path not in (found := by_age(folder)):
        known = ", ".join(str(int(each.name[5:])) for each in reversed(found))
        raise CheckpointError(
            f"{folder} has no checkpoint '{name}'",
            f"It has best, last, and those of the steps {known or '–'}.",
        )
    return verify(path)


def verify(path: Path, disks: Disks | None = None, rank: int = 0) -> Checkpoint:
    """The checkpoint at a path, its files compared with the manifest before a tensor is used.

    With `disks`, only the files that the disk of worker `rank` keeps.
    """
    manifest = read_manifest(path)
    try:
        for name, expected in manifest["files"].items():
            if disks is not None and not disks.keep(expected.get("rank", 0), rank):
                continue
            if "kept_by" in expected and not (path / Path(name).name).exists():
                raise CheckpointError(
                    f"{path} lacks {name}, which {' and '.join(expected['kept_by'])} have kept",
                    "Copy it from there, or resume the run with these machines.",
                )
            actual = file_sha256(path / Path(name).name)
            if actual != expected["sha256"]:
                raise CheckpointError(
                    f"{path / name} is damaged: its sha256 is {actual}, but the manifest has {expected['sha256']}"
                )
        if not manifest["files"]:
            raise CheckpointError(f"{path / MANIFEST} lists no file of tensors")
        files = tuple(Path(name).name for name in manifest["files"])
        with _naming(path / MANIFEST):
            progress = Progress.from_record(manifest["progress"])
        return Checkpoint(path, progress, files, dict(manifest.get("parts", {})))
    except OSError as error:
        raise CheckpointError(f"{error.filename} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _no_manifest(path, error) from None


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of the checkpoint at a path, compared with its checksum and the run's id."""
    try:
        manifest: Any = json.loads(read_text(path / MANIFEST))
        if manifest["format"] not in READABLE or manifest["format"] is True:  # which equals 1
            raise CheckpointError(
                f"{path} has format {manifest['format']}; this version of shoal reads {READABLE}"
            )
        checksum = manifest.pop("sha256", None)
        if (manifest["format"] > 1 or checksum is not None) and checksum != record_sha256(manifest):
            raise CheckpointError(f"{path / MANIFEST} is damaged: its content does not match its sha256")
        RunFolder(path.parent.parent).check_run_id(path / MANIFEST, manifest.get("run_id", ""))
        return manifest
    except OSError as error:
        raise CheckpointError(f"{error.filename} cannot be read: {error.strerror}") from None
    except ConfigError as error:
        raise CheckpointError(error.message, error.hint) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _no_manifest(path, error) from None


def _no_manifest(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"{path / MANIFEST} is not a manifest: {error!r}")


@contextlib.contextmanager
def _naming(path: Path) -> Generator[None]:
    """Put the file's name before the sentence of an error about its content."""
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"{path} is damaged: {error.message}", error.hint) from None


def _is_whole(path: Path, disks: Disks, rank: int) -> bool:
    with contextlib.suppress(CheckpointError):
        return path.exists() and bool(verify(path, disks, rank))
    return False


def by_age(folder: Path) -> list[Path]:
    """Finished checkpoints, newest first."""
    found = [path for path in folder.glob("step-*") if path.suffix != ".tmp" and path.name[5:].isdigit()]
    return sorted(found, key=lambda path: int(path.name[5:]), reverse=True)


def _write_tensors(folder: Path, rank: int, pieces: Sequence[Piece]) -> dict[str, Any]:
    """Write one worker's file; return its entry in the manifest."""
    path = folder / tensors_of(rank)
    # One tensor after the other, so that nothing of the state's size is allocated to save it.
    with open_new(path) as file:
        named = {piece.name: piece for piece in pieces}
        kinds = {name: (piece.tensor.dtype, tuple(piece.tensor.shape)) for name, piece in named.items()}
        offsets = write_header(file, kinds, {})
        for name in sorted(named, key=offsets.__getitem__):
            write_tensor(file, named[name].values.detach().cpu())
    flush(path)
    parts = {piece.name: piece.place.record() for piece in pieces if not piece.is_whole}
    return {"rank": rank, "sha256": file_sha256(path), "bytes": path.stat().st_size, "parts": parts}


def _write_manifest(
    folder: Path, progress: Progress, entries: Sequence[Mapping[str, Any]], run_id: str, disks: Disks
) -> None:
    files: dict[str, dict[str, Any]] = {}
    for entry in entries:
        rank = entry["rank"]
        files[tensors_of(rank)] = {key: entry[key] for key in ("sha256", "bytes", "rank")}
        if not disks.is_one:
            files[tensors_of(rank)]["kept_by"] = [
                disks.name_of(each) for each in (rank, disks.copier_of(rank))
            ]
    parts = {tensors_of(entry["rank"]): entry["parts"] for entry in entries if entry["parts"]}
    manifest = {"format": FORMAT, "progress": asdict(progress), "files": files, "parts": parts}
    manifest |= {"run_id": run_id} if run_id else {}
    path = folder / MANIFEST
    with open_new(path) as file:
        file.write(json.dumps({**manifest, "sha256": record_sha256(manifest)}, indent=1).encode())
    flush(path)
    flush(folder)


def file_sha256(path: Path) -> str:
    """The checksum of a file."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _free(folder: Path) -> str:
    with contextlib.suppress(OSError):
        return f"{shutil.disk_usage(folder).free / 2**20:.1f} MiB"
    return "unknown space"
