"""The run folder: one place that knows what lies where in it.

runs/<name>/config.toml            the resolved settings
            events.rank0.jsonl     what happened, a line each
            checkpoints/step-…/    states to resume from
            model.safetensors      the trained weights, under the plain module's names
            result.json            the closing record, as `--json` prints it
            worker.rank0.log       what a worker process printed, if it printed anything
"""

import fcntl
import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.errors import ConfigError


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
    def result(self) -> Path:
        """The closing record."""
        return self.path / "result.json"

    def events(self, rank: int = 0) -> Path:
        """The events of one worker."""
        return self.path / f"events.rank{rank}.jsonl"

    def read_result(self) -> dict[str, Any]:
        """The closing record of a run that ended."""
        try:
            return json.loads(self.result.read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError):
            raise ConfigError(
                f"{self.path} holds no closed run: {self.result.name} is missing or unreadable"
            ) from None


def create(parent: Path, name: str, automatic: str) -> RunFolder:
    """Make the folder of a new run: `parent/name`, or, where no name is given, the automatic one with a free number."""
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
    raise ConfigError(f"{parent} is full of runs called {automatic}", "Give this one a name with --name.")


def _create_named(path: Path) -> RunFolder:
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise ConfigError(
            f"the run folder {path} is taken",
            f"Choose another --name, or go on with that run: shoal train --resume {path}",
        )
    return RunFolder(path)


@contextmanager
def held(folder: RunFolder) -> Generator[None]:
    """Inside, this process alone writes to the run; an error if another one does. A death lets go of it, too."""
    descriptor = os.open(folder.path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"the run in {folder.path} is still going, in another process",
                "Let it end, or stop it with Ctrl-C there.",
            ) from None
        except OSError:
            pass  # some network file systems know no locks
        yield
    finally:
        os.close(descriptor)


def write_whole(path: Path, text: str) -> None:
    """Write a file beside its place and rename it there, so that no reader ever sees half of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
