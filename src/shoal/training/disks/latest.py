"""The newest checkpoint of which the disks together have all files, made whole on each of them."""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal.comm.agree import gather_texts, share_text
from shoal.comm.group import Group
from shoal.errors import CheckpointError
from shoal.events.folder import record_sha256
from shoal.files import complete_file, delete, discard, flush, make_folder
from shoal.training.checkpoint import MANIFEST, Checkpoint, by_age, file_sha256, read_manifest, verify
from shoal.training.disks.disks import Disks
from shoal.training.disks.transfer import Transfer, carry_out
from shoal.training.progress import Progress

Copies = Mapping[str, Sequence[int]]
"""The keepers whose disk has a file of a checkpoint, by the file's name."""


def latest_of_all(folder: Path, group: Group, disks: Disks, check: Callable[[Progress], None]) -> Checkpoint:
    """The newest checkpoint that the disks together have; afterwards each of them has all its files.

    A collective. Phase 1: all learn which checkpoints there are. Phase 2, from the newest on: each disk compares its
    files with the manifest. Phase 3: files go to the disks that lack them. `passed_over` names newer checkpoints.
    """
    found, faults = _found(folder) if disks.keeps(group.rank) else ({}, {})
    holders: dict[tuple[str, str], list[int]] = {}
    for rank, text in enumerate(gather_texts(group, json.dumps([found, faults]))):
        theirs, unreadable = json.loads(text)
        for name, checksum in theirs.items():
            holders.setdefault((name, checksum), []).append(rank)
        faults |= {name: f"{fault} ({disks.name_of(rank)})" for name, fault in unreadable.items()}
    for (name, _), keepers in sorted(holders.items(), key=lambda each: (-_step(each[0][0]), each[1])):
        manifest = json.loads(share_text(group, _text(folder / name, group.rank == keepers[0]), keepers[0]))
        copies = _copies(folder / name, group, manifest if group.rank in keepers else {"files": {}})
        if fault := _missing(folder / name, manifest, copies) or _misfit(folder / name, manifest, check):
            faults[name] = fault
            continue
        lacking = [
            keeper
            for keeper in disks.ring
            if any(
                keeper not in copies[file] and disks.keep(expected["rank"], keeper)
                for file, expected in manifest["files"].items()
            )
        ]
        _fetch(folder / name, group, disks, manifest, copies, group.rank in keepers)
        if lacking and group.rank == 0:
            whose = " and ".join(disks.name_of(keeper) for keeper in lacking)
            warnings.warn(f"{whose} lacked parts of {folder / name}: copies of other machines", stacklevel=2)
        newer = [fault for other, fault in faults.items() if _step(other) > _step(name)]
        return replace(verify(folder / name), passed_over=tuple(newer))
    if faults:
        raise CheckpointError(f"no checkpoint in {folder} can be used: {'; '.join(faults.values())}")
    raise CheckpointError(
        f"{folder} holds no checkpoint on any machine", "Start the run again without --resume."
    )


def _step(name: str) -> int:
    return int(name.removeprefix("step-"))


def _found(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The checkpoints of this disk with the checksums of their manifests; those without a manifest, with the reason."""
    found, faults = dict[str, str](), dict[str, str]()
    for path in by_age(folder):
        try:
            found[path.name] = record_sha256(read_manifest(path))
        except CheckpointError as error:
            faults[path.name] = error.message
    return found, faults


def _text(path: Path, is_here: bool) -> str:
    """The manifest that every disk has alike."""
    return json.dumps(read_manifest(path)) if is_here else ""


def _copies(path: Path, group: Group, manifest: Mapping[str, Any]) -> dict[str, list[int]]:
    """Which disks have which files, compared with their sha256; a collective."""
    good: list[str] = []
    for name, expected in manifest["files"].items():
        file = path / Path(name).name
        if file.is_file() and file_sha256(file) == expected["sha256"]:
            good.append(name)
    copies: dict[str, list[int]] = {}
    for rank, text in enumerate(gather_texts(group, json.dumps(good))):
        for name in json.loads(text):
            copies.setdefault(name, []).append(rank)
    return copies


def _missing(path: Path, manifest: Mapping[str, Any], copies: Copies) -> str:
    """The sentence about files that no disk has; empty if there are none."""
    lost = [
        f"{name} (kept by {' and '.join(expected.get('kept_by', ['nobody else']))})"
        for name, expected in manifest["files"].items()
        if name not in copies
    ]
    return f"{path} is not complete: no machine here has {', '.join(lost)}" if lost else ""


def _misfit(path: Path, manifest: Mapping[str, Any], check: Callable[[Progress], None]) -> str:
    try:
        check(Progress.from_record(manifest["progress"]))
    except CheckpointError as error:
        return f"{path / MANIFEST} is damaged: {error.message}"
    return ""


def _fetch(
    path: Path, group: Group, disks: Disks, manifest: Mapping[str, Any], copies: Copies, is_here: bool
) -> None:
    """Bring every file to every disk that lacks it. What arrives has its place once all of it is there."""
    beside = path.with_name(f"{path.name}.tmp")
    is_keeper = disks.keeps(group.rank)
    if is_keeper:
        delete(beside)
    transfers = [
        Transfer(
            copies[name][number % len(copies[name])],
            keeper,
            path / Path(name).name,
            beside / Path(name).name,
            0,
            expected["bytes"],
            expected["sha256"],
        )
        for number, (name, expected) in enumerate(manifest["files"].items())
        for keeper in disks.ring
        if keeper not in copies[name]
    ]
    failure = ""
    try:
        if is_keeper:
            make_folder(path.parent)
            make_folder(beside)
        carry_out(group, transfers)
        if is_keeper:
            _put_in_place(path, beside, manifest, is_here)
    except OSError as error:
        failure = f"{disks.name_of(group.rank)} cannot copy {path} from other machines: {error}"
    finally:
        if is_keeper:
            delete(beside)
    if failures := [each for each in gather_texts(group, failure) if each]:
        raise CheckpointError("; ".join(failures), "Mend that machine's disk, and resume again.")


def _put_in_place(path: Path, beside: Path, manifest: Mapping[str, Any], is_here: bool) -> None:
    """Move the files into the checkpoint that they belong to; a folder that is none of it is replaced."""
    if is_here:
        for file in beside.iterdir():
            file.replace(path / file.name)
        flush(path)
        return
    with complete_file(beside / MANIFEST) as file:
        file.write(json.dumps({**manifest, "sha256": record_sha256(manifest)}, indent=1).encode())
    flush(beside / MANIFEST)
    flush(beside)
    if path.exists():
        discard(path)
    beside.rename(path)
    flush(path.parent)
