"""The event file of one worker: one JSON object per line, append only, so that a crash damages only the last line."""

import json
import threading
import warnings
from collections import deque
from pathlib import Path
from typing import Any, Literal

from shoal.errors import ConfigError
from shoal.files import open_file, open_to_append

FLUSH_S = 0.25
"""The most that a crash can lose; nothing from before the newest checkpoint."""

Record = dict[str, Any]


class EventFile:
    """Appends records; a separate thread encodes and writes them, off the hot path. Use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # append and popleft of a deque are atomic; swapping a list between two threads is not.
        self._waiting: deque[Record] = deque()
        self._closing = threading.Event()
        self._writing = threading.Lock()
        self._failure: OSError | None = None
        try:
            self._file = open_to_append(path)
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from None
        self._thread = threading.Thread(
            target=self._write_until_closed, name=f"events:{path.name}", daemon=True
        )
        self._thread.start()

    def append(self, record: Record) -> None:
        """Queue a record; it is written within FLUSH_S. Do not change it afterwards."""
        self._waiting.append(record)

    def flush(self) -> None:
        """Write the queued records now: before a checkpoint, so that no crash loses a step that is not done again."""
        with self._writing:
            lines: list[str] = []
            while self._waiting:
                lines.append(json.dumps(self._waiting.popleft(), separators=(",", ":")) + "\n")
            try:
                self._file.write("".join(lines))
                self._file.flush()
            except OSError as error:
                self._failure = error  # raised by close(): training itself can go on

    def close(self) -> None:
        """Write the queued records and end the thread."""
        self._closing.set()
        self._thread.join()
        try:
            self._file.close()
        except OSError as error:
            self._failure = self._failure or error
        if self._failure:
            raise ConfigError(f"cannot write {self.path}: {self._failure.strerror}", "Is the disk full?")

    def __enter__(self) -> "EventFile":
        return self

    def __exit__(self, kind: object, *error: object) -> Literal[False]:
        try:
            self.close()
        except ConfigError as failure:
            if kind is None:
                raise
            warnings.warn(failure.message, stacklevel=2)  # the error that ends the run is more important
        return False

    def _write_until_closed(self) -> None:
        while True:
            closing = self._closing.wait(FLUSH_S)
            self.flush()
            if closing:
                return


def read_events(path: Path) -> list[Record]:
    """The records of an event file. Damaged lines are left out; a warning names those before the last."""
    try:
        with open_file(path) as file:
            *lines, rest = file.read().split(b"\n")
    except OSError as error:
        raise ConfigError(f"{path.parent} is not a run folder: {path.name}: {error.strerror}") from None
    records = [_record(line) for line in lines if line]
    damaged = [number for number, line in enumerate(lines, 1) if line and _record(line) is None]
    if damaged:
        which = f"line {damaged[0]} is" if len(damaged) == 1 else f"{len(damaged)} lines are"
        warnings.warn(f"{path}: {which} damaged and left out", stacklevel=2)
    # A crash may have cut the last line short.
    return [record for record in [*records, _record(rest)] if record is not None]


_FIELDS = {"step": ("step", "seconds", "totals_ns"), "start": ("step",), "validation": ("step",)}
"""What readers rely on, by event."""


def _record(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
        whole = all(field in record for field in _FIELDS.get(record["event"], ()))
        return record if isinstance(record, dict) and whole else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
