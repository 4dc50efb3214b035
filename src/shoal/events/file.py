"""One worker's event file: a JSON object per line, append only, so that it survives a crash up to its last line."""

import contextlib
import json
import threading
from collections import deque
from pathlib import Path
from typing import Any, Literal

from shoal.errors import ConfigError

FLUSH_S = 0.25
"""How much a crash can lose at most."""

Record = dict[str, Any]


class EventFile:
    """Appends records; a thread of its own turns them into lines, off the hot path. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._waiting: deque[Record] = (
            deque()
        )  # its append and popleft are atomic; a list swapped by two threads is not
        self._closing = threading.Event()
        self._failure: OSError | None = None
        self._file = path.open("a", encoding="utf-8")
        self._thread = threading.Thread(
            target=self._write_until_closed, name=f"events:{path.name}", daemon=True
        )
        self._thread.start()

    def append(self, record: Record) -> None:
        """Take a record; it is on disk within FLUSH_S. Do not change it afterwards."""
        self._waiting.append(record)

    def close(self) -> None:
        """Write what is waiting and end the thread."""
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
                self._failure = error  # told when the file is closed; training itself can go on
            if closing:
                return


def read_events(path: Path) -> list[Record]:
    """The records of a file. A last line cut short by a crash is left out; nothing else may be broken."""
    *whole, rest = path.read_text(encoding="utf-8").split("\n")
    records = [json.loads(line) for line in whole if line]
    with contextlib.suppress(json.JSONDecodeError):
        records += [json.loads(rest)] if rest else []
    return records
