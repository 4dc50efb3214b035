"""Staleness and the progress of each worker, for the runs of a comparison that have parameter servers."""

from collections.abc import Sequence

from shoal.compare.comparison import ComparedRun
from shoal.report.document import Block, Bullets, Table
from shoal.report.staleness import Staleness, staleness_of

HEADER = ("run", "rank", "pushes", "dropped", "staleness (mean)", "lost after")


def server_blocks(entries: Sequence[ComparedRun]) -> list[Block]:
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
            "" if worker.lost_after is None else f"{worker.lost_after:,} updates",
        )
        for name, progress in found
        for worker in progress.workers
    ]
    return [
        Table("Pushes to parameter servers", HEADER, rows, frozenset(range(1, len(HEADER)))),
        Bullets([f"Staleness of {name}, by updates: {progress.in_words()}." for name, progress in found]),
    ]
