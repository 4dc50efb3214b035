"""What the page and the terminal both say about a run: numbers, states and the log, in words."""

from collections.abc import Iterator

from shoal.events.file import Record
from shoal.printable import printable, shortened
from shoal.watch.snapshot import Snapshot, WorkerRow
from shoal.words import Words

UNKNOWN = "–"


def numbers_of(now: Snapshot, words: Words) -> dict[str, str]:
    """The numbers of the run, by name."""
    step = f"{now.steps:,}"
    if now.total_steps:
        step = words("tile.of", step=step, total=f"{now.total_steps:,}")
    left = now.left_s
    elapsed = duration(now.seconds)
    numbers = {
        "step": step,
        "loss": UNKNOWN if now.loss is None else f"{now.loss:.4f}",
        "validation": None if now.validation is None else _validation(now.validation),
        "speed": UNKNOWN if now.samples_per_s is None else f"{now.samples_per_s:,.0f}",
        "time": elapsed if left is None else words("tile.left", time=elapsed, left=duration(left)),
    }
    return {words(f"tile.{name}"): value for name, value in numbers.items() if value is not None}


def _validation(record: Record) -> str:
    accuracy, loss = record.get("accuracy"), record.get("loss")
    if accuracy is not None:
        return f"{100 * accuracy:.1f} %"
    return UNKNOWN if loss is None else f"{loss:.4f}"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> duration(75.2), duration(3 * 3600 + 61)
    ('1:15', '3:01:01')
    """
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


COLUMNS = ("rank", "state", "steps", "step_ms", "compute", "move", "wait", "memory")


def cells_of(row: WorkerRow, words: Words) -> list[str]:
    """The row of a worker in a table, in the order of COLUMNS."""
    shares = row.shares
    parts = [UNKNOWN] * 3
    if shares is not None:
        parts = [f"{100 * part:.0f} %" for part in (shares.compute, shares.move, shares.wait)]
    step_ms = UNKNOWN if row.step_s is None else f"{1e3 * row.step_s:,.1f}"
    memory = UNKNOWN if row.memory is None else f"{row.memory / 1e6:,.0f}"
    return [str(row.rank), state_of(row, words), f"{row.steps:,}", step_ms, *parts, memory]


def state_of(row: WorkerRow, words: Words) -> str:
    """What a worker does; of a slow one that it is slow."""
    state = words(f"state.{row.state}")
    if row.state == "waiting":
        return words("state.silent", seconds=f"{row.silent_s:,.0f}")
    return words("state.slow", state=state) if row.slower and row.state == "training" else state


def slow_sentences(now: Snapshot, words: Words) -> Iterator[tuple[str, str]]:
    """The claim about each slow worker, and its numbers."""
    known = [row.shares for row in now.workers if row.shares is not None]
    for row in now.slow:
        wait = sum(each.wait for each in known) / len(known)
        numbers = words(
            "slow.numbers",
            steps=row.shares.steps if row.shares else 0,
            ratio=f"{row.slower:.1f}",
            wait=f"{100 * wait:.0f} %",
        )
        yield words("slow.claim", rank=row.rank), numbers


def log_lines(now: Snapshot, slow_since: dict[int, tuple[int, float]], words: Words) -> list[str]:
    """The log, the oldest line first: events by step, when workers became slow, and what workers have printed."""
    first = min((rank for rank, _ in now.events), default=0)
    entries = [
        (event.get("step", now.steps), line)
        for rank, event in now.events
        for line in _event_lines(rank, event, rank == first, words)
    ]
    entries += [
        (step, words("log.slow", step=f"{step:,}", rank=rank, ratio=f"{ratio:.1f}"))
        for rank, (step, ratio) in slow_since.items()
    ]
    lines = [line for _, line in sorted(entries, key=lambda entry: entry[0])]
    lines += [words("log.output", rank=rank, line=line) for rank, line in now.output]
    return [printable(shortened(line)) for line in lines]


def _event_lines(rank: int, event: Record, is_first: bool, words: Words) -> Iterator[str]:
    """The line of an event. Most events are the same on all workers: those of the first count."""
    kind, step = event["event"], f"{event.get('step', 0):,}"
    if kind == "failed":
        yield words("log.failed", rank=rank, error=event.get("error", "?"))
    elif not is_first:
        return
    elif kind == "start":
        name = "resume" if event.get("step") else "start"
        place = {"workers": event.get("workers", 1), "host": event.get("host", "?")}
        yield words(f"log.{name}", rank=rank, step=step, **place)
    elif kind == "validation" and event.get("loss") is not None:
        accuracy = event.get("accuracy")
        name = "validation" if accuracy is None else "validation_accuracy"
        yield words(
            f"log.{name}", step=step, loss=f"{event['loss']:.4f}", accuracy=f"{100 * (accuracy or 0):.2f}"
        )
    elif kind == "checkpoint":
        yield words("log.checkpoint", step=step)
    elif kind == "codec":
        yield words("log.codec", step=step, codec=event.get("codec", "?"))
    elif kind == "fallback":
        yield words("log.fallback", step=f"{event.get('used', 0):,}")
    elif kind == "lost":
        yield words("log.lost")
    elif kind == "end":
        done = event.get("status") == "completed"
        yield words("log.end_completed" if done else "log.end_interrupted", step=step)
