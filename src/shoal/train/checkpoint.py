"""Checkpoints: safetensors and a manifest, never half of one.

Saving: `step-000150.tmp/` gets the tensors, then `manifest.json` with their sha256 and size, each flushed to disk, then
the folder is renamed and its parent flushed. A crash at any moment leaves the previous checkpoint as it was.
Loading: a checkpoint counts when its manifest verifies; "latest" is found by looking, not by a file that can be wrong.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from shoal.errors import CheckpointError
from shoal.train.progress import Progress

FORMAT = 1
TENSORS = "rank0.safetensors"
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint."""

    path: Path
    progress: Progress

    def pieces(self) -> dict[str, Tensor]:
        """The tensors, on the host."""
        return load_file(self.path / TENSORS)


def save(folder: Path, pieces: Mapping[str, Tensor], progress: Progress, keep: int) -> Path:
    """Write `folder/step-…`, then delete all but the newest `keep`; on an error everything older is still there."""
    name = f"step-{progress.step:06d}"
    final, beside = folder / name, folder / f"{name}.tmp"
    if _is_whole(final):
        return final  # saved before, by this run or by the one it resumes: the state is the same
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        _write_tensors(beside / TENSORS, pieces)
        _write_manifest(beside, progress)
        _flush(beside)
        shutil.rmtree(final, ignore_errors=True)  # only a damaged one can stand there
        beside.rename(final)
        _flush(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(beside, ignore_errors=True)
        needed = sum(piece.numel() * piece.element_size() for piece in pieces.values())
        raise CheckpointError(
            f"cannot save {folder / name} ({needed / 2**20:.1f} MiB needed, {_free(folder)} free): {error}",
            "The checkpoints before it are untouched.",
        ) from None
    for old in _by_age(folder)[keep:]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def latest(folder: Path) -> Checkpoint:
    """The newest checkpoint that verifies; damaged ones are passed over, and named if none is left."""
    faults: list[str] = []
    for path in _by_age(folder):
        try:
            return verify(path)
        except CheckpointError as error:
            faults.append(error.message)
    if faults:
        raise CheckpointError(f"no checkpoint in {folder} is whole: {'; '.join(faults)}")
    raise CheckpointError(f"{folder} holds no checkpoint", "Start the run again without --resume.")


def verify(path: Path) -> Checkpoint:
    """The checkpoint at a path, its files compared with the manifest before a tensor is used."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            raise CheckpointError(
                f"{path} has format {manifest['format']}; this version of shoal reads {FORMAT}"
            )
        for name, expected in manifest["files"].items():
            actual = _sha256(path / Path(name).name)
            if actual != expected["sha256"]:
                raise CheckpointError(
                    f"{path / name} is damaged: sha256 {actual}, and the manifest says {expected['sha256']}"
                )
        if TENSORS not in manifest["files"]:
            raise CheckpointError(f"{path / MANIFEST} does not list {TENSORS}")
        return Checkpoint(path, Progress(**manifest["progress"]))
    except OSError as error:
        raise CheckpointError(f"{error.filename} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path / MANIFEST} is not a manifest: {error!r}") from None


def _is_whole(path: Path) -> bool:
    with contextlib.suppress(CheckpointError):
        return path.exists() and bool(verify(path))
    return False


def _by_age(folder: Path) -> list[Path]:
    """Finished checkpoints, newest first."""
    found = [path for path in folder.glob("step-*") if path.suffix != ".tmp" and path.name[5:].isdigit()]
    return sorted(found, key=lambda path: int(path.name[5:]), reverse=True)


def _write_tensors(path: Path, pieces: Mapping[str, Tensor]) -> None:
    # Copied, because safetensors refuses tensors that share memory, as tied weights do.
    save_file({name: piece.detach().cpu().clone().contiguous() for name, piece in pieces.items()}, path)
    _flush(path)


def _write_manifest(folder: Path, progress: Progress) -> None:
    tensors = folder / TENSORS
    entry = {"sha256": _sha256(tensors), "bytes": tensors.stat().st_size, "rank": 0}
    path = folder / MANIFEST
    path.write_text(
        json.dumps({"format": FORMAT, "progress": asdict(progress), "files": {TENSORS: entry}}, indent=1)
    )
    _flush(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _free(folder: Path) -> str:
    with contextlib.suppress(OSError):
        return f"{shutil.disk_usage(folder).free / 2**20:.1f} MiB"
    return "unknown space"
