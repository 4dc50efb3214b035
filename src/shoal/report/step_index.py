"""Finds a worker's steps in its event file without reading all their spans: a long run does not fit the memory.

Most lines are only searched for two numbers. Of a step that kept its spans the index has the place in the file, and
`spans` reads the step from there. 100,000 steps take a few megabytes.
"""

import json
import math
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shoal.errors import ConfigError, ShoalError
from shoal.events.clocks import ClockOffset, to_rank0_clock
from shoal.events.file import Record, verified_lines
from shoal.events.folder import RunFolder
from shoal.events.spans import Span
from shoal.events.steps import StepRecord, spans_in, step_of
from shoal.files import open_file
from shoal.report.meetings import event_files

_STEP = re.compile(
    rb'\{"event":"step","step":(\d+),"epoch":\d+,"samples":(\d+),"loss":([^,]+),"lr":([^,]+),"seconds":([^,]+),'
    rb'"totals_ns":\{[^}]*\},"blocked_ns":\d+,"sent_bytes":(\d+),"mapped_bytes":(\d+)'
)
"""As a run writes its steps. Others, of profiles and of older versions, are read as JSON, which takes longer."""
COLUMNS = 10
_OPTIONAL = ("samples", "loss", "sent_bytes", "mapped_bytes", "lr")


@dataclass
class StepIndex:
    """The steps of one worker in order; a step that a resumed run repeated is there once."""

    rank: int
    path: Path
    rows: "array[float]" = field(default_factory=lambda: array("d"))
    """COLUMNS of each step: its number; the seconds of training at its end; where its line begins; how often the run
    had been started before, since the worker may then have another clock; its samples and its loss, NaN for a user's
    own program; whether it kept its spans; the bytes that it sent, and how many of them were mapped, NaN if not
    counted; the learning rate, NaN if not recorded."""
    clocks: list[list[ClockOffset]] = field(default_factory=lambda: [[]])
    workers: int = 1
    """How many workers the run has, parameter servers included."""
    events: list[Record] = field(default_factory=list[Record])
    """Everything that is no step."""
    problem: str = ""
    """What is wrong with the end of the file; the steps before it are whole."""

    @cached_property
    def table(self) -> NDArray[np.float64]:
        """A row for each step."""
        return np.frombuffer(self.rows, dtype=np.float64).reshape(-1, COLUMNS)

    @cached_property
    def seconds(self) -> NDArray[np.float64]:
        """How long each step took."""
        return np.diff(self.table[:, 1], prepend=0.0)

    @cached_property
    def kept(self) -> dict[int, int]:
        """The row of each step that kept its spans."""
        rows = np.flatnonzero(self.table[:, 6])
        return dict(zip(self.table[rows, 0].astype(int).tolist(), rows.tolist(), strict=True))

    def spans(self, step: int) -> list[Span]:
        """The spans of a step on rank 0's clock."""
        ((record, convert),) = self._records([self.kept[step]])
        try:
            return [span for span in spans_in(record, convert) if span.duration_ns >= 0]
        except (TypeError, ValueError, AttributeError) as error:
            raise RunFolder(self.path.parent).damaged(
                f"the spans of step {step} in {self.path.name} cannot be read ({error})"
            ) from None

    def steps_in(self, rows: Sequence[int]) -> list[StepRecord]:
        """The steps of these rows in full."""
        seconds = self.seconds
        return [
            step_of(record, float(seconds[row]), convert)
            for row, (record, convert) in zip(rows, self._records(rows), strict=True)
        ]

    def _records(self, rows: Sequence[int]) -> Iterator[tuple[Record, Callable[[int], int]]]:
        """The records of steps, and for each the conversion to rank 0's clock."""
        with open_file(self.path) as file:
            for offset, attempt in self.table[list(rows), 2:4].astype(int).tolist():
                file.seek(offset)
                yield json.loads(file.readline()), to_rank0_clock(self.clocks[attempt])

    def add_line(self, offset: int, line: bytes) -> Record | None:
        """Note a line of the file; the record of an event that is no step."""
        attempt = len(self.clocks) - 1
        if step := _STEP.match(line):
            number, samples, loss, lr, seconds, sent, mapped = map(float, step.groups())
            is_short = line.startswith(b',"crc"', step.end())  # most lines: they need not be searched
            is_kept = not is_short and b'"spans":' in line
            self.rows.extend((number, seconds, offset, attempt, samples, loss, is_kept, sent, mapped, lr))
            return None
        record: Record = json.loads(line)
        if record["event"] == "step":
            is_kept = "spans" in record or "calls" in record
            samples, loss, sent, mapped, lr = (record.get(name, math.nan) for name in _OPTIONAL)
            place = (record["step"], record["seconds"], offset, attempt)
            self.rows.extend((*place, samples, loss, is_kept, sent, mapped, lr))
            return None
        self.events.append(record)
        self._add_event(record)
        return record

    def newest(self, steps: int) -> "StepIndex":
        """The last steps alone, while the file goes on growing; the seconds of the first of them are unknown."""
        rows = self.rows[-COLUMNS * steps :]
        return StepIndex(self.rank, self.path, rows, [*self.clocks], self.workers)

    def _add_event(self, record: Record) -> None:
        """Note the clock, and forget the steps that a resumed run repeats."""
        if record["event"] == "start":
            self.clocks.append([])
            self.workers = record.get("workers", 1)
            while self.rows and self.rows[-COLUMNS] >= record["step"]:
                del self.rows[-COLUMNS:]
        if "clock" in record:
            self.clocks[-1].append(ClockOffset(**record["clock"]))


def read_index(rank: int, path: Path) -> StepIndex:
    """The index of an event file, up to the first damage, which becomes its `problem`; read again only if changed."""
    state: tuple[int, ...] = ()
    with suppress(OSError):  # which is the problem of the index
        status = path.stat()
        state = status.st_ino, status.st_size, status.st_mtime_ns
    return _read_index(rank, path, *state)


@lru_cache(maxsize=64)
def _read_index(rank: int, path: Path, *_state: int) -> StepIndex:
    found = StepIndex(rank, path)
    try:
        for offset, line in verified_lines(path):
            found.add_line(offset, line)
    except ShoalError as error:
        found.problem = error.message
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        found.problem = f"{path} cannot be read ({type(error).__name__}: {error})"
    return found


def read_indices(folder: Path) -> tuple[list[StepIndex], list[str]]:
    """The workers of a run that made steps, by rank, and a sentence for everything that is damaged or missing."""
    if not folder.is_dir():
        raise ConfigError(f"no run folder {folder}", "Runs are in runs/NAME.")
    found = [read_index(rank, path) for rank, path in event_files(folder)]
    problems = [index.problem for index in found if index.problem]
    there = {index.rank for index in found}
    problems += [
        f"{RunFolder(folder).events(rank)} is missing: worker {rank} has no row"
        for rank in range(max(index.workers for index in found))
        if rank not in there
    ]
    for index in found:
        index.workers = max(index.workers, *(rank + 1 for rank in there))
    return [index for index in found if index.kept], problems


def kept_steps(indices: Sequence[StepIndex]) -> dict[int, list[float]]:
    """The steps whose spans some worker kept, in order, each with the seconds of those workers."""
    seconds: dict[int, list[float]] = {}
    for index in indices:
        for step, row in index.kept.items():
            seconds.setdefault(step, []).append(float(index.seconds[row]))
    return dict(sorted(seconds.items()))


def kept_by_most(indices: Sequence[StepIndex]) -> dict[int, float]:
    """The steps whose spans most workers kept, in order, each with the seconds of the slowest of them."""
    seconds = kept_steps(indices)
    most = max(map(len, seconds.values()), default=0)
    return {step: max(own) for step, own in seconds.items() if len(own) == most}
