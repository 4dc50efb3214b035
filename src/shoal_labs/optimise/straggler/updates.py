"""What a server's log of updates shows: whether the bound of ssp was kept, and how stale each worker's updates are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.events.file import Record


@dataclass(frozen=True)
class Update:
    """One push that was applied."""

    rank: int
    step: int
    """The steps that its worker had finished before."""
    from_version: int
    """Updates in the weights of its gradient."""
    version: int
    staleness: int


def updates_in(records: Sequence[Record]) -> list[Update]:
    """The updates of a server, in order."""
    return [_update(record) for record in records if record["event"] == "update"]


def _update(record: Mapping[str, Any]) -> Update:
    return Update(*(record[key] for key in ("rank", "step", "from_version", "version", "staleness")))


def bound_broken(updates: Sequence[Update], bound: int) -> int:
    """Updates whose gradient misses another update that the bound of ssp guarantees.

    A gradient of step c must know of all updates of all workers' steps before c − bound (Ho et al. 2013).

    >>> early, late = Update(0, 0, 0, 1, 0), Update(1, 2, 0, 2, 1)
    >>> bound_broken([early, late], bound=2), bound_broken([early, late], bound=1)
    (0, 1)
    """
    last_version: dict[int, int] = {}
    for update in updates:
        last_version[update.step] = max(update.version, last_version.get(update.step, 0))
    newest = 0
    needed: list[int] = []  # by step: the newest version among the updates of all earlier steps
    for step in range(max(last_version, default=-1) + 1):
        needed.append(newest)
        newest = max(newest, last_version.get(step, 0))
    return sum(update.from_version < needed[max(0, update.step - bound)] for update in updates)
