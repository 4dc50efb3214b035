"""A process of `shoal verify`: a worker that is recorded, or the world of one that is compared with the records."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Generator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shoal.comm.join import WorkerAddress, own_place
from shoal.comm.over_torch.torch_calls import replace
from shoal.config.schema import RunConfig
from shoal.errors import ConfigError
from shoal.training import worker
from shoal.verify.finding import Finding, Outcome
from shoal.verify.recorder import recorded
from shoal.verify.reference import compared

OUTCOME = "outcome.json"
LOG = "one_machine.log"
REPLICAS = ("single", "naive", "ddp")
"""Strategies of runs that are seen as loops of a program's own."""


@contextlib.contextmanager
def verified(
    folder: str, reference: int = 0, most: int | None = None, comparable: bool = False
) -> Generator[None]:
    """Record the program in the body; or compare it with the records of so many workers if `reference` is not 0."""
    if not reference:
        place = own_place() or WorkerAddress(0, 1)
        with _loops_only(), recorded(Path(folder), place.rank, most, comparable):
            yield
        return
    with _quiet(Path(folder) / LOG), compared(Path(folder), reference, comparable) as outcome:
        yield
    write(Path(folder), outcome)


@contextlib.contextmanager
def _loops_only() -> Generator[None]:
    """Refuse `shoal.train` and `shoal.fit` with strategies whose workers do not all update the whole model."""

    def refusing(work: Callable[..., Any]) -> Callable[..., Any]:
        def checked(config: RunConfig, *args: Any, **kwargs: Any) -> Any:
            if config.strategy not in REPLICAS and ":" not in config.strategy:
                raise ConfigError(
                    f"the program trains with strategy {config.strategy}, whose workers do not all update the whole "
                    "model: its steps cannot be compared from outside",
                    f"`shoal verify --strategy {config.strategy} …` compares it, with the settings of `shoal train`.",
                )
            return work(config, *args, **kwargs)

        return checked

    with contextlib.ExitStack() as undo:
        replace(undo, worker, "work", refusing)
        yield


@contextlib.contextmanager
def _quiet(log: Path) -> Generator[None]:
    """What the program prints was shown when the workers ran it."""
    sys.stdout.flush()
    kept = os.dup(1)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        try:
            yield
        finally:
            sys.stdout.flush()
            os.dup2(kept, 1)
            os.close(kept)


def write(folder: Path, outcome: Outcome) -> None:
    """Leave the outcome for the command."""
    (folder / OUTCOME).write_text(json.dumps(asdict(outcome)))


def outcome_in(folder: Path) -> Outcome:
    """The outcome that a comparison left."""
    found = json.loads((folder / OUTCOME).read_text())
    finding = found.pop("finding")
    return Outcome(**found, finding=finding and Finding(**finding))
