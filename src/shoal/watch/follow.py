"""Follows a run folder while it grows. The files are enough: a run that is watched does nothing for it.

Every reading takes the whole lines that are new. A line that is half written is read again when the rest is there; a
file that became shorter, or is another one, is read from its beginning.
"""

import json
import os
import re
from collections import deque
from pathlib import Path

from shoal.config.read import from_tree, read_recipe
from shoal.config.schema import RunConfig
from shoal.errors import ConfigError, ShoalError
from shoal.events.file import LineChecks, Record
from shoal.events.folder import RunFolder
from shoal.events.spans import KEPT_EVERY
from shoal.events.steps import StepRecord, steps_of
from shoal.files import open_file
from shoal.report.meetings import event_files
from shoal.report.step_index import COLUMNS, StepIndex

RECENT = 100
"""The newest steps, from which the shares of the time and the speed are computed. Five of them kept their spans."""
MOST_EVENTS = 500
_SPANS = re.compile(rb', ?"spans":.*', re.DOTALL)
OUTPUT_BYTES = 4096
"""The end of what a worker has printed."""


class FollowedWorker:
    """One worker: its steps so far, the newest of them in full, and its other events."""

    def __init__(self, rank: int, path: Path) -> None:
        self.rank, self.path = rank, path
        self._begin(file_number=0)

    def _begin(self, file_number: int) -> None:
        self._file_number, self._offset, self._checks = file_number, 0, LineChecks(self.path)
        self.index = StepIndex(self.rank, self.path)
        self._recent = deque[bytes](maxlen=RECENT + 1)
        self.start: Record = {}
        """The newest start of the run."""
        self.end: Record = {}
        """The event that ended the worker, if it has ended: `end` or `failed`."""
        self.events = deque[Record](maxlen=MOST_EVENTS)
        """Events that are no steps."""
        self.validations: list[Record] = []
        self.changed_s = 0.0
        """When the file last grew, by the clock of its file system."""

    def read(self) -> bool:
        """Read the new lines; whether there were any. After damage the rest of the file is left out."""
        try:
            with open_file(self.path) as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._file_number or status.st_size < self._offset:
                    self._begin(status.st_ino)
                if self.index.problem or status.st_size == self._offset:
                    return False
                before, self.changed_s = self._offset, status.st_mtime
                file.seek(self._offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._take(line.rstrip(b"\n"))
                    self._offset += len(line)
                return self._offset > before
        except ShoalError as error:
            self.index.problem = error.message
        except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            self.index.problem = f"{self.path} cannot be read ({type(error).__name__}: {error})"
        return True

    def _take(self, line: bytes) -> None:
        if not self._checks.is_whole(line):
            return
        record = self.index.add_line(self._offset, line)
        if record is None:
            self._recent.append(line)
            return
        kind = record["event"]
        self.events.append(record)
        if kind == "start":
            self.start, self.end = record, {}
            self._recent.clear()
            self.validations = [each for each in self.validations if each["step"] <= record["step"]]
        elif kind == "validation":
            self.validations.append(record)
        elif kind in ("end", "failed"):
            self.end = record

    def recent_steps(self) -> list[StepRecord]:
        """The newest steps of this start, on rank 0's clock; of the first one the duration is unknown."""
        clock = {key: self.start[key] for key in ("clock",) if key in self.start}
        start = {"event": "start", "step": 0, **clock}
        # Spans are read as rarely as without --trace: reading all of them again and again would take long.
        numbers = self.index.rows[-COLUMNS * len(self._recent) :: COLUMNS] if self._recent else ()
        lines = [
            line if number % KEPT_EVERY == 0 else _SPANS.sub(b"}", line)
            for number, line in zip(numbers, self._recent, strict=True)
        ]
        return steps_of([start, *map(json.loads, lines)])[1:]


class FollowedRun:
    """The folder of a run."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise ConfigError(f"no run folder {path}", "Runs are in runs/NAME.")
        self.folder = RunFolder(path)
        self.workers: dict[int, FollowedWorker] = {}
        self.config: RunConfig | None = None
        """Its settings, once they are written; a profile of a user's own program has none."""
        self._problem = ""

    def read(self) -> bool:
        """Read what is new; whether there was anything."""
        problem_before, self._problem = self._problem, ""
        if self.config is None and not self._read_settings():
            return self._problem != problem_before
        try:
            for rank, path in event_files(self.folder.path):
                if rank not in self.workers:
                    self.workers[rank] = FollowedWorker(rank, path)
        except ConfigError as error:
            self._problem = error.message
        # A list: what one worker wrote may be the reason why the others stopped.
        changed = [worker.read() for _, worker in sorted(self.workers.items())]
        return any(changed) or self._problem != problem_before

    def _read_settings(self) -> bool:
        """Whether the events can be read: every event file is compared with the id in the settings, written first."""
        try:
            if self.folder.is_profile:
                return True
            self.config = from_tree(read_recipe(str(self.folder.config)))
        except ShoalError as error:
            self._problem = error.message
        return self.config is not None

    @property
    def problems(self) -> list[str]:
        """A sentence for everything that is damaged or missing."""
        found = [self._problem, *(worker.index.problem for worker in self.workers.values())]
        missing = range(max((worker.index.workers for worker in self.workers.values()), default=0))
        began = any(len(worker.index.rows) for worker in self.workers.values())
        found += [
            f"{self.folder.events(rank)} is missing: worker {rank} has no row"
            for rank in missing
            if rank not in self.workers and began
        ]
        return [problem for problem in found if problem]

    def output(self) -> list[tuple[int, str]]:
        """The newest lines that workers have printed, each with its rank."""
        lines: list[tuple[int, str]] = []
        for rank in sorted(self.workers):
            try:
                with open_file(self.folder.path / f"worker.rank{rank}.log") as file:
                    size = os.fstat(file.fileno()).st_size
                    file.seek(max(0, size - OUTPUT_BYTES))
                    text = file.read(OUTPUT_BYTES).decode(errors="replace")
            except OSError:
                continue
            # The first line may lack its beginning.
            lines += [(rank, line) for line in text.splitlines()[size > OUTPUT_BYTES :]]
        return lines


def newest_run(folder: Path) -> Path:
    """The run that began last among the folders in a folder."""
    try:
        runs = [
            (path.stat().st_mtime, each)
            for each in folder.iterdir()
            for path in [RunFolder(each).config]
            if path.exists()
        ]
    except OSError:
        runs = []
    if not runs:
        raise ConfigError(f"there is no run in {folder}", "Name the run's folder: shoal watch RUN")
    return max(runs)[1]
