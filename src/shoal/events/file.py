"""The event file of one worker: one JSON object per line, append only, so that a crash damages only the last line."""

import contextlib
import json
import threading
from collections import deque
from pathlib import Path
from typing import Any, Literal

from shoal.errors import ConfigError

FLUSH_S = 0.25
"""The most that a crash can lose."""

Record = dict[str, Any]


class EventFile:
    """Appends records; a separate thread encodes and writes them, off the hot path. Use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # append and popleft of a deque are atomic; swapping a list between two threads is not.
        self._waiting: deque[Record] = deque()
        self._closing = threading.Event()
        self._failure: OSError | None = None
        self._file = path.open("a", encoding="utf-8")
        self._thread = threading.Thread(
            target=self._write_until_closed, name=f"events:{path.name}", daemon=True
        )
        self._thread.start()

    def append(self, record: Record) -> None:
        """Queue a record; it is written within FLUSH_S. Do not change it afterwards."""
        self._waiting.append(record)

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

    def __exit__(self, *error: object) -> Literal[False]:
        self.close()
        return False

    def _write_until_closed(self) -> None:
        while True:
            closing = self._closing.wait(FLUSH_S)
            lines: list[str] = []
            while self._waiting:
                lines.append(json.dumps(self._waiting.popleft(), separators=(",", ":")) + "\n")
            try:
                self._file.write("".join(lines))
                self._file.flush()
            except OSError as error:
                self._failure = error  # raised by close(): training itself can go on
            if closing:
                return


def read_events(path: Path) -> list[Record]:
    """The records of an event file. A last line that a crash cut short is left out; any other bad line is an error."""
    try:
        *lines, rest = path.read_text(encoding="utf-8").split("\n")
        records = [json.loads(line) for line in lines if line]
    except OSError as error:
        raise ConfigError(f"{path.parent} is not a run folder: {path.name}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is damaged: {error}") from None
    with contextlib.suppress(json.JSONDecodeError):
        records += [json.loads(rest)] if rest else []
    return records
