"""The board: memory in which each worker notes its calls of torch's groups, for the other workers and the launcher.

A worker writes before it issues a call, and then looks at its two neighbours in the group: of calls that differ, two
stand side by side, so the worker that comes later sees it before torch does (gloo aborts on some of them and hangs on
others). A note costs a few microseconds. It outlives the worker.

The launcher holds the memory; workers open it through `/proc`, so nothing is left behind. On systems without `/proc` no
worker opens it, and nothing is watched.
"""

import contextlib
import mmap
import os
import struct
import time
import zlib
from collections.abc import Generator
from typing import final

from shoal.launch.hangs.calls import Call

VARIABLE = "SHOAL_BOARD"
"""Tells workers where the board is."""
SLOTS, SLOT = 64, 512
"""Calls that are kept of each worker, and bytes of each."""
HEADER = 64
CONFIRM_S = 0.002
"""After this time a note that was read while it was written is whole."""
_NUMBER = struct.Struct("=Q")
_NOTE = struct.Struct("=QQH")
"""Number of the call, time, length of the text that follows."""


@final
class Board:
    """One area for each rank: a header, the call that it waits in, and its last calls."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.size = size
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, HEADER + size * (HEADER + (SLOTS + 1) * SLOT))

    @classmethod
    def create(cls, size: int) -> "Board | None":
        """The launcher's; None on a system without such memory."""
        if not hasattr(os, "memfd_create") or not os.path.isdir("/proc/self/fd"):
            return None
        descriptor = os.memfd_create("shoal board", os.MFD_CLOEXEC)
        os.truncate(descriptor, HEADER + size * (HEADER + (SLOTS + 1) * SLOT))
        return cls(descriptor, size)

    @classmethod
    def open(cls, path: str, size: int) -> "Board | None":
        """A worker's."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                return cls(os.dup(descriptor), size)
            finally:
                os.close(descriptor)
        except (OSError, ValueError):
            return None

    def path(self) -> str:
        """Where workers find it."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def close(self) -> None:
        """Free the memory, once no other process uses it."""
        with contextlib.suppress(BufferError):
            self._memory.close()
        os.close(self._descriptor)

    def ask(self, rank: int) -> None:
        """Ask a worker where it is."""
        self._set(self._area(rank), self.num_asked(rank) + 1)

    def num_asked(self, rank: int) -> int:
        """How often the worker was asked."""
        return self._get(self._area(rank))

    def note(self, rank: int, call: Call, packed: bytes) -> None:
        """Note a call that a worker is about to issue."""
        self._write(self._slot(rank, call.key, call.number), call.number, packed)
        self._set(self._area(rank) + 16, time.monotonic_ns())

    def begin_wait(self, rank: int, number: int, packed: bytes) -> None:
        """Note in which call a worker waits from now on."""
        self._write(self._area(rank) + HEADER, number, packed)
        self._set(self._area(rank) + 8, time.monotonic_ns())

    def end_wait(self, rank: int) -> None:
        """Note that the worker goes on."""
        self._set(self._area(rank) + 8, 0)
        self._set(self._area(rank) + 16, time.monotonic_ns())

    def waits_since_ns(self, rank: int) -> int:
        """Since when a worker waits, by the monotonic clock; 0 if it does not."""
        return self._get(self._area(rank) + 8)

    def changed_ns(self, rank: int) -> int:
        """When a worker last noted something other than that it waits; 0: never."""
        return self._get(self._area(rank) + 16)

    def waits_in(self, rank: int) -> Call | None:
        """The call in which a worker waits."""
        return self._read(self._area(rank) + HEADER) if self.waits_since_ns(rank) else None

    def call(self, rank: int, key: str, number: int) -> Call | None:
        """One call of a worker, if it is still on the board."""
        found = self._read(self._slot(rank, key, number))
        return found if found is not None and (found.key, found.number) == (key, number) else None

    def calls(self, rank: int) -> list[Call]:
        """The last calls of a worker."""
        first = self._area(rank) + HEADER + SLOT
        found = [self._read(first + place * SLOT) for place in range(SLOTS)]
        return sorted((call for call in found if call is not None), key=lambda call: call.number)

    def differing(self, rank: int, call: Call) -> dict[int, Call]:
        """All members' calls of this number, if a neighbour's differs from this one's; else nothing."""
        members = call.members(self.size)
        place = members.index(rank)
        for other in {members[place - 1], members[(place + 1) % len(members)]} - {rank}:
            theirs = self.call(other, call.key, call.number)
            if theirs is not None and not theirs.agrees(call):
                time.sleep(CONFIRM_S)
                if self.call(other, call.key, call.number) == theirs:
                    known = {each: self.call(each, call.key, call.number) for each in members}
                    return {each: found for each, found in known.items() if found is not None}
        return {}

    def _area(self, rank: int) -> int:
        return HEADER + rank * (HEADER + (SLOTS + 1) * SLOT)

    def _slot(self, rank: int, key: str, number: int) -> int:
        place = (zlib.crc32(key.encode()) + number) % SLOTS
        return self._area(rank) + HEADER + (1 + place) * SLOT

    def _get(self, at: int) -> int:
        return _NUMBER.unpack_from(self._memory, at)[0]

    def _set(self, at: int, value: int) -> None:
        _NUMBER.pack_into(self._memory, at, value)

    def _write(self, at: int, number: int, packed: bytes) -> None:
        text = packed[: SLOT - _NOTE.size]
        self._set(at, 0)  # nobody reads it until it is whole
        self._memory[at + _NOTE.size : at + _NOTE.size + len(text)] = text
        _NOTE.pack_into(self._memory, at, 0, time.monotonic_ns(), len(text))
        self._set(at, number)

    def _read(self, at: int) -> Call | None:
        number, _, length = _NOTE.unpack_from(self._memory, at)
        if not number:
            return None
        text = self._memory[at + _NOTE.size : at + _NOTE.size + length]
        with contextlib.suppress(ValueError):
            return Call.unpacked(number, text)
        return None


@contextlib.contextmanager
def board_for(size: int) -> Generator[Board | None]:
    """The board of a launch, until its workers have ended."""
    board = Board.create(size)
    try:
        yield board
    finally:
        if board is not None:
            board.close()
