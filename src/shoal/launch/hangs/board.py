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
from collections.abc import Generator, Sequence
from typing import final

from shoal.launch.hangs.calls import Call

VARIABLE = "SHOAL_BOARD"
"""Tells workers where the board is."""
SLOTS, SLOT = 64, 512
"""Calls that are kept of each worker, and bytes of each."""
HEADER = 64
CONFIRM_S = 30.0
"""How long another worker's note may stand before torch has issued the call or refused it."""
_NUMBER = struct.Struct("=Q")
_WAIT = struct.Struct("=QQ")
"""Since when, and where the call is noted."""
_NOTHING = bytes(8)
_ISSUED = 1 << 63
"""Added to the number of a call once torch has issued it."""
AREA = HEADER + (SLOTS + 1) * SLOT
"""Bytes of a rank: requests, wait, last change; its last message; its last collectives."""


@final
class Board:
    """One area for each rank: a header, the call that it waits in, and its last calls."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.size = size
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, HEADER + size * AREA)

    @classmethod
    def create(cls, size: int) -> "Board | None":
        """The launcher's; None on a system without such memory."""
        if not hasattr(os, "memfd_create") or not os.path.isdir("/proc/self/fd"):
            return None
        descriptor = os.memfd_create("shoal board", os.MFD_CLOEXEC)
        os.truncate(descriptor, HEADER + size * AREA)
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
        _NUMBER.pack_into(self._memory, self._area(rank), self.num_asked(rank) + 1)

    def num_asked(self, rank: int) -> int:
        """How often the worker was asked."""
        return self._get(self._area(rank))

    def slot(self, rank: int, group: int, number: int) -> int:
        """Where a worker notes a collective of a group, of which `group` is the checksum of its key."""
        return self._area(rank) + HEADER + (1 + (group + number) % SLOTS) * SLOT

    def message_slot(self, rank: int) -> int:
        """Where a worker notes its last message."""
        return self._area(rank) + HEADER

    def note(self, at: int, number: int, packed: bytes) -> None:
        """Note a call that is about to be issued."""
        _NUMBER.pack_into(self._memory, at, 0)  # nobody reads it until it is whole
        self._memory[at + 8 : at + 8 + len(packed)] = packed
        _NUMBER.pack_into(self._memory, at, number)

    def issued(self, at: int, number: int) -> None:
        """Note that torch has issued the call that is noted there."""
        _NUMBER.pack_into(self._memory, at, number | _ISSUED)

    def withdraw(self, at: int) -> None:
        """Remove the note of a call that torch has refused."""
        _NUMBER.pack_into(self._memory, at, 0)

    def may_differ(self, at: int, number: int, packed: bytes) -> bool:
        """Whether another worker's note of this number has other bytes."""
        if self._get(at) & ~_ISSUED != number:
            return False
        return self._memory[at + 8 : at + 8 + len(packed)] != packed

    def begin_wait(self, rank: int, at: int) -> None:
        """Note that a worker waits from now on in the call that it has noted there."""
        _WAIT.pack_into(self._memory, self._area(rank) + 8, time.monotonic_ns(), at)

    def end_wait(self, rank: int) -> None:
        """Note that the worker goes on."""
        self._memory[self._area(rank) + 8 : self._area(rank) + 16] = _NOTHING
        self.change(rank)

    def change(self, rank: int) -> None:
        """Note that the worker makes progress."""
        _NUMBER.pack_into(self._memory, self._area(rank) + 24, time.monotonic_ns())

    def waits_since_ns(self, rank: int) -> int:
        """Since when a worker waits, by the monotonic clock; 0 if it does not."""
        return self._get(self._area(rank) + 8)

    def changed_ns(self, rank: int) -> int:
        """When a worker last noted something other than that it waits; 0: never."""
        return self._get(self._area(rank) + 24)

    def waits_in(self, rank: int) -> Call | None:
        """The call in which a worker waits."""
        since_ns, at = _WAIT.unpack_from(self._memory, self._area(rank) + 8)
        return self._read(at) if since_ns else None

    def call(self, rank: int, key: str, number: int) -> Call | None:
        """One call of a worker, if it is still on the board."""
        found = self._read(self.slot(rank, checksum(key), number))
        return found if found is not None and (found.key, found.number) == (key, number) else None

    def calls(self, rank: int) -> list[Call]:
        """The last calls of a worker."""
        first = self._area(rank) + HEADER + SLOT
        found = [self._read(first + place * SLOT) for place in range(SLOTS)]
        return sorted((call for call in found if call is not None), key=lambda call: call.number)

    def differing(self, rank: int, call: Call, ranks: Sequence[int], other: int) -> dict[int, Call]:
        """The calls of these ranks of this number, if that of rank `other` really differs; else nothing.

        The other's call counts once torch has issued it: until then, torch may refuse it. Of two that have not been
        issued, worker `rank` waits if it has the higher rank, and the other goes on.
        """
        at, deadline = self.slot(other, checksum(call.key), call.number), time.monotonic() + CONFIRM_S
        while True:
            is_issued = bool(self._get(at) & _ISSUED)
            theirs = self.call(other, call.key, call.number)
            if theirs is None or theirs.agrees(call) or (not is_issued and rank < other):
                return {}
            if is_issued or time.monotonic() > deadline:
                break
            time.sleep(0.001)
        known = {each: self.call(each, call.key, call.number) for each in ranks}
        return {each: found for each, found in known.items() if found is not None}

    def _area(self, rank: int) -> int:
        return HEADER + rank * AREA

    def _get(self, at: int) -> int:
        return _NUMBER.unpack_from(self._memory, at)[0]

    def _read(self, at: int) -> Call | None:
        number = self._get(at) & ~_ISSUED
        with contextlib.suppress(ValueError):
            return Call.unpacked(number, self._memory[at + 8 : at + SLOT]) if number else None
        return None


def checksum(key: str) -> int:
    """Of a group's key: the same in every process."""
    return zlib.crc32(key.encode())


@contextlib.contextmanager
def board_for(size: int) -> Generator[Board | None]:
    """The board of a launch, until its workers have ended."""
    board = Board.create(size)
    try:
        yield board
    finally:
        if board is not None:
            board.close()
