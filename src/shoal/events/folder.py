"""The layout of a run folder.

runs/<name>/config.toml            the resolved settings, below the run's id
            events.rank0.jsonl     one worker's events, one per line
            checkpoints/step-…/    states to resume from
            model.safetensors      the trained weights, under the plain module's names
            model.json, model.py   of a network that has shrunk: its widths, and the network as a program
            masks.safetensors      of a pruned run: which weights are kept
            first_step.safetensors the state of model and optimizer after the first step, if asked for
            result.json            the result, as `--json` prints it
            worker.rank0.log       the output of a worker process, if it printed anything

Workers that do not share a disk have a folder each (`training/disks/`): rank 0's has all events, weights and result.

A run has an id, drawn when its folder is created. Settings, result, events and checkpoints carry it, so that a file of
another run is noticed, wherever the folder is and whatever its name. Runs of older versions have none.
"""

import fcntl
import hashlib
import json
import os
import re
import shlex
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.errors import ConfigError
from shoal.files import delete, open_new, read_text, refuse_links, temporary_beside

_RUN_ID = "# run id: "
_NUMBER = (int, float)
_RESULT_KINDS: dict[str, tuple[type, ...]] = {
    "status": (str,), "weights_sha256": (str,), "device": (str,), "steps": (int,), "epochs": (int,),
    "workers": (int,), "seconds": _NUMBER, "bytes_sent": _NUMBER, "test_accuracy": _NUMBER, "test_loss": _NUMBER,
    "validation_accuracy": _NUMBER, "validation_loss": _NUMBER, "final_loss": _NUMBER, "best": (dict,),
    "test_samples": (int,), "test_metrics": (dict,), "validation_metrics": (dict,), "masks_sha256": (str,),
}  # fmt: skip
"""Kinds of the values that readers use, or None; a result without a checksum may have others."""


class _Inside:
    """The path of a file or folder in every run's folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: "RunFolder", kind: type["RunFolder"]) -> Path:
        return folder.path / self._name


@dataclass(frozen=True)
class RunFolder:
    """The paths inside one run's folder."""

    path: Path

    config = _Inside("config.toml")
    """The resolved settings."""
    checkpoints = _Inside("checkpoints")
    """The folder of checkpoints."""
    model = _Inside("model.safetensors")
    """The trained weights."""
    description = _Inside("model.json")
    """The widths of a network that has shrunk."""
    program = _Inside("model.py")
    """A network that has shrunk, as a program that needs nothing of ours."""
    masks = _Inside("masks.safetensors")
    """Which weights of a pruned run are kept."""
    first_step = _Inside("first_step.safetensors")
    """The state of model and optimizer after the first step."""
    result = _Inside("result.json")
    """The result of a finished run."""

    def events(self, rank: int = 0) -> Path:
        """The events of one worker."""
        return self.path / f"events.rank{rank}.jsonl"

    @property
    def is_profile(self) -> bool:
        """Whether it holds the profile of a user's own program, which has no settings of ours."""
        return not self.config.exists() and self.result.exists() and "profile" in self.read_result()

    @property
    def run_id(self) -> str:
        """The id of the run, from its settings; empty for a run of an older version."""
        try:
            found = re.match(f"(?:#.*\n)*?{_RUN_ID}([0-9a-f]+)\n", read_text(self.config))
        except (OSError, ValueError):
            return ""
        return found[1] if found else ""

    def check_run_id(self, path: Path, its: str) -> None:
        """Refuse a file that belongs to another run than the settings of this folder."""
        if its != (ours := self.run_id):
            raise ConfigError(
                f"{path} belongs to {_named(its)}, but {self.config} to {_named(ours)}",
                "Put back the files of one run; the folder may have any name and place.",
            )

    def read_result(self) -> dict[str, Any]:
        """The result of a finished run; an error for any other run, and for a damaged or foreign result."""
        try:
            result = json.loads(read_text(self.result))
        except (OSError, ValueError, RecursionError):
            result = None
        if not isinstance(result, dict):
            raise ConfigError(f"{self.path} has no finished run: {self.result.name} is missing or unreadable")
        found = dict[str, Any](result)
        checksum = found.pop("sha256", None)
        if (self.run_id or checksum is not None) and checksum != record_sha256(found):
            raise self.damaged(f"{self.result.name} does not match its checksum")
        self.check_run_id(self.result, found.get("run_id", ""))
        for key, kinds in _RESULT_KINDS.items():
            if found.get(key) is not None and not isinstance(found[key], kinds):
                raise self.damaged(f"{self.result.name} has {key} = {str(found[key])[:40]!r}")
        return found

    def finished_result(self) -> dict[str, Any]:
        """The result of a completed run; empty for a run without one, and after a run was resumed and stopped."""
        result = self.read_result() if self.result.exists() else {}
        return result if result.get("status") == "completed" else {}

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write the result and its checksum."""
        write_whole(self.result, json.dumps({**result, "sha256": record_sha256(result)}) + "\n")

    def damaged(self, what: str) -> ConfigError:
        """The error that reports damage to a file of the folder."""
        return ConfigError(f"the run in {self.path} is damaged: {what}", "Leave it out, or train it again.")


def run_id_line(run_id: str) -> str:
    """The line of `config.toml` that holds the id: a comment, so that the settings can also be a recipe."""
    return f"{_RUN_ID}{run_id}\n" if run_id else ""


def record_sha256(record: Mapping[str, Any]) -> str:
    """The checksum of a record that becomes JSON."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _named(run_id: str) -> str:
    return f"run {run_id}" if run_id else "a run of an older version, without an id"


def create(parent: Path, name: str, automatic: str) -> RunFolder:
    """Make the folder of a new run: `parent/name`; without a name, the automatic one, with the next free number."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        if name:
            path = parent / name
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise ConfigError(
                    f"the run folder {path} is not empty",
                    f"Choose another --name, or resume that run: {resume_command(path)}",
                )
            return RunFolder(path)
        for number in range(1, 10_000):
            try:
                path = parent / (automatic if number == 1 else f"{automatic}-{number}")
                path.mkdir()
                return RunFolder(path)
            except FileExistsError:
                continue
    except OSError as error:
        raise ConfigError(
            f"cannot write the run folder {parent / (name or automatic)}: {error.strerror}",
            "Choose another folder with --runs-dir.",
        ) from None
    raise ConfigError(f"{parent} has 9,999 runs called {automatic}", "Choose another name with --name.")


def resume_command(path: Path | str, trust_code: bool = False) -> str:
    """The command that continues a run, quoted for a shell; with consent, if the run names the user's own code.

    >>> resume_command("runs/my run")
    "shoal train --resume 'runs/my run'"
    """
    return f"shoal train --resume {shlex.quote(str(path))}{' --trust-code' * trust_code}"


_LOCKS = set[int]()
"""Descriptors whose locks this process has."""


def _leave_locks() -> None:
    """In a forked process, such as a loader: it would keep the run locked after its parent was killed."""
    while _LOCKS:
        os.close(_LOCKS.pop())


os.register_at_fork(after_in_child=_leave_locks)


@contextmanager
def held(folder: RunFolder) -> Generator[None]:
    """Lock the run for this process; an error if another process has it. The lock ends with the process.

    A link in the folder in place of a file or folder to write into is refused. The folder itself may be one.
    """
    path = folder.path
    try:
        refuse_links(
            [
                folder.checkpoints,
                *(path / logger for logger in ("tensorboard", "wandb", "mlflow")),
                *path.glob("events.rank*"),
                *path.glob("worker.rank*"),
            ]
        )
    except OSError as error:
        raise ConfigError(
            f"cannot write {error.filename}: {error.strerror}", "Put what it links to in its place."
        ) from None
    try:
        descriptor = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ConfigError(f"cannot open the run folder {folder.path}: {error.strerror}") from None
    _LOCKS.add(descriptor)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"the run in {folder.path} is in use by another process",
                "Wait until it ends, or stop it there with Ctrl-C.",
            ) from None
        except OSError:
            pass  # some network file systems have no locks
        yield
    finally:
        if descriptor in _LOCKS:
            _LOCKS.remove(descriptor)
            os.close(descriptor)


def remove_unfinished(folder: RunFolder) -> None:
    """Delete the files and checkpoints that a process was writing, or deleting, when it was killed.

    No process may be writing one.
    """
    left = [*folder.path.glob(".*.tmp")]
    if not folder.checkpoints.is_symlink():
        left += folder.checkpoints.glob("*.tmp")
    for path in left:
        delete(path)


def write_whole(path: Path, text: str) -> None:
    """Write a temporary file and rename it to `path`, so that no reader sees half of it."""
    temporary, content = temporary_beside(path), text.encode()
    try:
        with open_new(temporary) as file:
            file.write(content)
        temporary.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)
