"""The event file of one worker: one JSON object per line, append only, so that a crash damages only the last line.

Each line ends with its CRC-32, which continues the one of the line before; an attempt begins at 0. So a line that is
damaged, missing, moved or of another file is noticed, and a resumed run need not read what it appends to.

    {"event":"start","step":0,"run_id":"5f0c8a1be4f63d27","rank":0,…,"crc":"1c291ca3"}
    {"event":"step","step":0,"loss":2.31,…,"crc":"7f8e0b42"}
"""

import json
import os
import re
import threading
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

from shoal.errors import ConfigError
from shoal.events.folder import RunFolder, resume_command
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
        self._crc = 0
        try:
            self._file = open_to_append(path)
            size = os.fstat(self._file.fileno()).st_size
            if size and os.pread(self._file.fileno(), 1, size - 1) != b"\n":
                self._file.write(b"\n")  # after a line that a crash cut short
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from None
        self._thread = threading.Thread(
            target=self._write_until_closed, name=f"events:{path.name}", daemon=True
        )
        self._thread.start()

    def append(self, record: Record) -> None:
        """Queue a record; it is written within FLUSH_S. Do not change it afterwards."""
        self._waiting.append(record)

    def flush(self, to_disk: bool = False) -> None:
        """Write the queued records now; before a checkpoint to the disk: no crash loses a step that is not repeated."""
        with self._writing:
            lines: list[bytes] = []
            while self._waiting:
                content = json.dumps(self._waiting.popleft(), separators=(",", ":"))[:-1].encode()
                self._crc = crc32(content, self._crc)
                lines.append(b'%s,"crc":"%08x"}\n' % (content, self._crc))
            try:
                self._file.write(b"".join(lines))
                self._file.flush()
                if to_disk:
                    os.fsync(self._file.fileno())
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


def read_events(path: Path, *kinds: str) -> list[Record]:
    """The records of an event file; an error for lines that are damaged, missing or of another run.

    A line that a crash cut short is left out: the last one of the file, or the last before the run was resumed. In runs
    of older versions lines have no checksum, and only lines that are no records are noticed. With `kinds`, only the
    records of these events: of a long run all of them take seconds and a gigabyte.
    """
    wanted = re.compile(rb'\{"event":\s*"(%s)"' % "|".join(kinds).encode()) if kinds else None
    records = [json.loads(line) for _, line in verified_lines(path) if not wanted or wanted.match(line)]
    for record in records:
        record.pop("crc", None)
    return records


def first_event(path: Path) -> Record:
    """The first record of an event file; an empty one if it has none."""
    with open_file(path) as file:
        line = file.readline()
    return json.loads(line) if _is_record(line) else {}


def check_events(folder: RunFolder, result: Mapping[str, Any]) -> None:
    """Refuse a run with damaged events, or with an event file that lacks the end of the finished run."""
    ends = [folder.events(rank) for rank in range(result.get("workers", 0))] if folder.run_id else []
    for path in sorted(folder.path.glob("events.rank*.jsonl")):
        ((_, last),) = deque(verified_lines(path), maxlen=1) or [(0, b"")]
        if path in ends and result.get("status") == "completed" and not last.startswith(_END):
            raise ConfigError(
                f"{path} lacks the end of the run: it was cut short, or a resumed run has not finished",
                f"Leave the run out, or finish it: {resume_command(folder.path)}",
            )


_CRC = re.compile(rb',"crc":"([0-9a-f]{8})"\}$')
_CRC_BYTES = len(',"crc":"00000000"}')
_START, _END = b'{"event":"start"', b'{"event":"end"'
_FIRST = ("start", "fallback")
"""Events with which a resumed run begins."""


class LineChecks:
    """Compares the lines of an event file with their checksums, one after another, also while the file grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = RunFolder(path.parent)
        self._is_checked = bool(self._folder.run_id)
        self._crc = self._cut = self._number = 0
        self.is_faultless = True
        """Whether every line so far was whole."""

    def is_whole(self, line: bytes) -> bool:
        """Whether the next line, without its end, is a record; False if a crash cut it short. Damage is an error."""
        self._number += 1
        if not line:
            self.is_faultless = False
            return False
        if found := _CRC.match(line, max(len(line) - _CRC_BYTES, 0)):
            content, before, self._crc = line[:-_CRC_BYTES], self._crc, int(found[1], 16)
            is_whole = self._crc == crc32(content, before) or self._crc == crc32(content)
        else:
            is_whole = not self._is_checked and _is_record(line)
        if not is_whole and (found or self._cut):
            raise _damaged_line(self._path, self._cut or self._number)
        if not is_whole:
            self._cut = self._number
            self.is_faultless = False
            return False
        if self._cut and json.loads(line)["event"] not in _FIRST:
            raise _damaged_line(self._path, self._cut)
        self._cut = 0
        if line.startswith(_START):
            self._check_start(json.loads(line))
        return True

    def _check_start(self, start: Record) -> None:
        self._folder.check_run_id(self._path, start.get("run_id", ""))
        if "rank" in start and self._path != self._folder.events(start["rank"]):
            raise self._folder.damaged(f"{self._path.name} has the events of rank {start['rank']}")


def verified_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of an event file that are whole, each compared with its checksum, and where in the file each begins.

    A file without any fault is not compared again until it changes.
    """
    checks, end = LineChecks(path), 0
    state = _state(path)
    is_known = bool(state) and _FAULTLESS.get(path) == state
    for line in _lines(path):
        begin, end = end, end + len(line)
        line = line.rstrip(b"\n")
        if is_known or checks.is_whole(line):
            yield begin, line
    if state and checks.is_faultless and state == _state(path):
        _FAULTLESS[path] = state


_FAULTLESS: dict[Path, tuple[object, ...]] = {}
"""The state in which files were compared to their end."""


def _state(path: Path) -> tuple[object, ...]:
    """What changes when a file or the id of its run does; empty where there is no file."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns, RunFolder(path.parent).run_id


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, one at a time: an event file may be larger than the memory."""
    try:
        with open_file(path) as file:
            yield from file
    except OSError as error:
        raise ConfigError(f"{path.parent} is not a run folder: {path.name}: {error.strerror}") from None


def _damaged_line(path: Path, number: int) -> ConfigError:
    return RunFolder(path.parent).damaged(
        f"line {number} of {path.name} does not match its checksum, or lines before it are missing"
    )


_NUMBER = (int, float)
_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "step": {"step": (int,), "seconds": _NUMBER, "totals_ns": (dict,)},
    "start": {"step": (int,)},
    "validation": {"step": (int,)},
}
"""What readers rely on, by event."""


def _is_record(line: bytes) -> bool:
    try:
        record = json.loads(line)
        fields = _FIELDS.get(record["event"], {})
        return isinstance(record, dict) and all(
            isinstance(record[key], kinds) for key, kinds in fields.items()
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
