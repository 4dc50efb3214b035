"""A process of `shoal verify`: a worker that is recorded, or the world of one that is compared with the records."""

import contextlib
import json
import os
import sys
from collections.abc import Generator
from dataclasses import asdict
from pathlib import Path

from shoal.comm.join import WorkerAddress, own_place
from shoal.verify.finding import Finding, Outcome
from shoal.verify.recorder import recorded
from shoal.verify.reference import compared

OUTCOME = "outcome.json"
LOG = "one_machine.log"


@contextlib.contextmanager
def verified(
    folder: str, reference: int = 0, most: int | None = None, comparable: bool = False
) -> Generator[None]:
    """Record the program in the body; or compare it with the records of so many workers if `reference` is not 0."""
    if not reference:
        place = own_place() or WorkerAddress(0, 1)
        with recorded(Path(folder), place.rank, most, comparable):
            yield
        return
    with _quiet(Path(folder) / LOG), compared(Path(folder), reference, comparable) as outcome:
        yield
    write(Path(folder), outcome)


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
