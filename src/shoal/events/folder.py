"""The layout of a run folder.

runs/<name>/config.toml            the resolved settings
            events.rank0.jsonl     one worker's events, one per line
            checkpoints/step-…/    states to resume from
            model.safetensors      the trained weights, under the plain module's names
            model.json, model.py   of a network that has shrunk: its widths, and the network as a program
            masks.safetensors      of a pruned run: which weights are kept
            first_step.safetensors the state of model and optimizer after the first step, if asked for
            result.json            the result, as `--json` prints it
            worker.rank0.log       the output of a worker process, if it printed anything
"""

import fcntl
import json
import os
import shlex
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.errors import ConfigError
from shoal.files import read_text


@dataclass(frozen=True)
class RunFolder:
    """The paths inside one run's folder."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved settings."""
        return self.path / "config.toml"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """The trained weights."""
        return self.path / "model.safetensors"

    @property
    def description(self) -> Path:
        """The widths of a network that has shrunk."""
        return self.path / "model.json"

    @property
    def program(self) -> Path:
        """A network that has shrunk, as a program that needs nothing of ours."""
        return self.path / "model.py"

    @property
    def masks(self) -> Path:
        """Which weights of a pruned run are kept."""
        return self.path / "masks.safetensors"

    @property
    def first_step(self) -> Path:
        """The state of model and optimizer after the first step."""
        return self.path / "first_step.safetensors"

    @property
    def result(self) -> Path:
        """The result of a finished run."""
        return self.path / "result.json"

    def events(self, rank: int = 0) -> Path:
        """The events of one worker."""
        return self.path / f"events.rank{rank}.jsonl"

    def read_result(self) -> dict[str, Any]:
        """The result of a finished run; an error for any other run."""
        try:
            result = json.loads(read_text(self.result))
            if isinstance(result, dict):
                return result
        except (OSError, ValueError, RecursionError):
            pass
        raise ConfigError(f"{self.path} has no finished run: {self.result.name} is missing or unreadable")


def create(parent: Path, name: str, automatic: str) -> RunFolder:
    """Make the folder of a new run: `parent/name`; without a name, the automatic one, with the next free number."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        if name:
            return _create_named(parent / name)
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


def _create_named(path: Path) -> RunFolder:
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise ConfigError(
            f"the run folder {path} is not empty",
            f"Choose another --name, or resume that run: {resume_command(path)}",
        )
    return RunFolder(path)


@contextmanager
def held(folder: RunFolder) -> Generator[None]:
    """Lock the run for this process; an error if another process has it. The lock ends with the process."""
    try:
        descriptor = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ConfigError(f"cannot open the run folder {folder.path}: {error.strerror}") from None
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
        os.close(descriptor)


def temporary_beside(path: Path) -> Path:
    """Where this process writes a file before it renames it to `path`."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def remove_unfinished(folder: RunFolder) -> None:
    """Delete the files and checkpoints that a process was writing when it was killed. No process may be writing one."""
    for path in folder.path.glob(".*.tmp"):
        path.unlink(missing_ok=True)
    for path in folder.checkpoints.glob("*.tmp"):
        shutil.rmtree(path, ignore_errors=True)


def write_whole(path: Path, text: str) -> None:
    """Write a temporary file and rename it to `path`, so that no reader sees half of it."""
    temporary = temporary_beside(path)
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)
