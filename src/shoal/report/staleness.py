"""Staleness and progress under a parameter server, from the record of every update in a server's events.

The *staleness* of an update is the number of updates that the weights contain and its gradient does not know of: those
that other workers made while this one was computing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shoal.events.file import Record, read_events
from shoal.events.folder import RunFolder


class WorkerProgress(NamedTuple):
    """What one worker has pushed."""

    rank: int
    pushes: int
    """Pushes that were applied or skipped."""
    dropped: int
    """Pushes that came after the update of their step (backup workers)."""
    staleness: float
    """Of its updates, the mean."""
    lost_after: int | None = None
    """Updates of all workers before it was lost, if it was."""


@dataclass(frozen=True)
class Staleness:
    """All updates of one server."""

    histogram: Mapping[int, int]
    """The number of pushes with each staleness, in ascending order."""
    workers: Sequence[WorkerProgress]
    skipped: int
    """Pushes that were left out because a number was not finite."""

    @property
    def mean(self) -> float:
        """The mean over all pushes."""
        return sum(value * count for value, count in self.histogram.items()) / max(1, self.pushes)

    @property
    def pushes(self) -> int:
        """All pushes that were applied or skipped."""
        return sum(self.histogram.values())

    def in_words(self) -> str:
        """The histogram on one line.

        >>> Staleness({0: 1, 1: 3}, (), 0).in_words()
        '0: 25 %, 1: 75 % (mean 0.75, at most 1)'
        """
        names = [
            (f"{value} or more" if and_more else value, share) for value, share, and_more in self.shares()
        ]
        shares = ", ".join(f"{name}: {100 * share:.0f} %" for name, share in names)
        return f"{shares} (mean {self.mean:.2f}, at most {max(self.histogram)})"

    def shares(self) -> list[tuple[int, float, bool]]:
        """Each staleness, the part of the pushes with it, and whether that includes all larger ones.

        >>> Staleness({0: 1, 1: 3}, (), 0).shares()
        [(0, 0.25, False), (1, 0.75, False)]
        """
        parts = list(self.histogram.items())
        too_many = len(parts) > MOST_BARS
        if too_many:
            value, _ = parts[MOST_BARS - 1]
            parts = [*parts[: MOST_BARS - 1], (value, sum(count for _, count in parts[MOST_BARS - 1 :]))]
        last = len(parts) - 1
        return [
            (value, count / self.pushes, too_many and index == last)
            for index, (value, count) in enumerate(parts)
        ]

    def progress_in_words(self) -> str:
        """The pushes of every worker on one line."""
        return ", ".join(
            f"rank {each.rank}: {each.pushes}" + f" and {each.dropped} dropped" * bool(each.dropped)
            for each in self.workers
        )


MOST_BARS = 8
"""Values of staleness that are shown one by one."""


def staleness_of(folder: RunFolder, workers: int) -> Staleness | None:
    """The updates of the first server, whose rank follows the workers'; None if it has recorded none."""
    path = folder.events(workers)
    return staleness_in(read_events(path), workers) if path.exists() else None


def staleness_in(records: Sequence[Record], workers: int) -> Staleness | None:
    """The updates in a server's records; what a resumed run repeated counts once."""
    pushes: list[Record] = []
    lost: dict[int, int] = {}
    for record in records:
        if record["event"] == "start":
            pushes = [push for push in pushes if push["step"] < record["step"]]
            lost = {}  # all workers are started again
        elif record["event"] == "lost":
            lost[record["rank"]] = record["version"]
        elif record["event"] in ("update", "dropped"):
            pushes.append(record)
    updates = [push for push in pushes if push["event"] == "update"]
    if not updates:
        return None
    progress: list[WorkerProgress] = []
    for rank in range(workers):
        own = [push["staleness"] for push in updates if push["rank"] == rank]
        dropped = sum(push["event"] == "dropped" and push["rank"] == rank for push in pushes)
        mean = sum(own) / max(1, len(own))
        progress.append(WorkerProgress(rank, len(own), dropped, mean, lost.get(rank)))
    histogram = dict(sorted(Counter(push["staleness"] for push in updates).items()))
    return Staleness(histogram, progress, sum("skipped" in push for push in updates))
