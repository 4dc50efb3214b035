"""Staleness and the progress of each worker, for the runs of a comparison that have parameter servers."""

from collections.abc import Sequence

from shoal.compare.comparison import ComparedRun
from shoal.compare.remark import percent
from shoal.report.document import Block, Bullets, Table
from shoal.report.staleness import Staleness, staleness_of
from shoal.words import Words

COLUMNS = ("run", "rank", "pushes", "dropped", "staleness", "lost_after")


def server_blocks(entries: Sequence[ComparedRun], words: Words) -> list[Block]:
    """A table of all workers, and the distribution of staleness of each run; nothing without such runs."""
    found: list[tuple[str, Staleness]] = []
    for entry in entries:
        progress = staleness_of(entry.run.folder, entry.workers) if entry.config.num_servers else None
        if progress is not None:
            found.append((entry.name, progress))
    if not found:
        return []
    rows = [
        (
            name,
            str(worker.rank),
            f"{worker.pushes:,}",
            f"{worker.dropped:,}",
            f"{worker.staleness:.2f}",
            "" if worker.lost_after is None else words("cell.updates", count=worker.lost_after),
        )
        for name, progress in found
        for worker in progress.workers
    ]
    header = [words(f"column.{column}") for column in COLUMNS]
    return [
        Table(words("table.pushes"), header, rows, frozenset(range(1, len(header)))),
        Bullets([_histogram(name, progress, words) for name, progress in found]),
    ]


def _histogram(name: str, progress: Staleness, words: Words) -> str:
    """The distribution of staleness on one line."""
    shares = [
        words(
            "measured.share",
            value=words("measured.or_more", value=value) if and_more else value,
            percent=percent(share),
        )
        for value, share, and_more in progress.shares()
    ]
    numbers = {"mean": progress.mean, "most": max(progress.histogram)}
    return words("measured.staleness", name=name, shares=shares, **numbers)
