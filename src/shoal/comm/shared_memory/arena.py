"""The memory of a shared-memory group: one mapping without a name, what is where in it, and the fence that orders it.

The mapping is a `memfd`: peers open it through `/proc/<pid>/fd/<n>` while its maker keeps the descriptor, and once all
have mapped it the descriptor is closed. So no death at any moment leaves anything behind, and the size of `/dev/shm`
does not matter. It is sealed against growing and shrinking, so that no peer can truncate it. A random token at the end
detects a descriptor that belongs to something else. In it are a board per member, slots for data, boxes for messages.
One writer per word, each flag in cache lines of its own: Python has no atomic addition on shared memory, and two
writers in one line would slow each other down::

    boards   per member: rounds posted | last progress, wait | state, cause | headers, one per slot | last words
    slots    per member: NUM_SLOTS × SLOT_BYTES, what it contributes to a round
    boxes    per pair (sender, receiver): chunks sent | chunks taken | headers | NUM_BOXES × BOX_BYTES

A worker that sees a flag must also see what was written before the flag. x86-64 keeps the order of stores and of loads
by itself. ARM does not: there every flag is written after a fence and read before one. Python has no fence of its own,
so this module uses a library's: C11's `atomic_thread_fence` from libatomic, or, where that is not installed, two atomic
additions of libstdc++ (torch itself needs that library). A release is ordered before a later acquire, so everything
before the first addition happens before everything after the second.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
import platform
import secrets
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, final

import torch
from torch import Tensor

from shoal.comm.liveness.judge import REASONS, LastWords, still_waits
from shoal.errors import JoinError

SEQUENTIALLY_CONSISTENT = 5
"""C11's memory_order_seq_cst."""
PAGE = mmap.PAGESIZE
MADV_HUGEPAGE = 14
NUM_SLOTS = 8
SLOT_BYTES = 512 * 1024
"""What one round of a collective carries per member: small enough for the caches of all."""
NUM_BOXES = 4
BOX_BYTES = 256 * 1024
"""What one chunk of a message carries."""
LINE = 16
"""Words between flags: two cache lines, because processors fetch them in pairs."""
BOARD_BYTES = PAGE
CONTROL_BYTES = PAGE
_POSTED, _ALIVE, _STATE, _HEADERS, _TEXT = 0, LINE, 2 * LINE, 3 * LINE, 3 * LINE + 4 * NUM_SLOTS
_TEXT_BYTES = BOARD_BYTES - 8 * _TEXT
ENDED = 1


def no_fence() -> None:
    """Nothing: the processor keeps the order."""


def _from_libatomic() -> Callable[[], None]:
    # PyDLL keeps the interpreter lock: releasing it costs more than the fence.
    fence = ctypes.PyDLL("libatomic.so.1").atomic_thread_fence
    fence.argtypes, fence.restype = [ctypes.c_int], None

    def call() -> None:
        fence(SEQUENTIALLY_CONSISTENT)

    call()
    return call


def _from_libstdcxx() -> Callable[[], None]:
    add = ctypes.PyDLL("libstdc++.so.6")._ZN9__gnu_cxx18__exchange_and_addEPVii
    add.argtypes = [ctypes.c_void_p, ctypes.c_int]
    word = ctypes.c_int(0)
    address = ctypes.addressof(word)

    def call(keep: ctypes.c_int = word) -> None:
        add(address, 1)
        add(address, -1)

    call()
    return call


@lru_cache(maxsize=1)
def find_fence() -> Callable[[], None] | None:
    """The fence of this machine, or None where Python cannot order shared memory."""
    if sys.platform != "linux":
        return None
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        return no_fence
    if machine in ("aarch64", "arm64"):
        for source in (_from_libatomic, _from_libstdcxx):
            try:
                return source()
            except (OSError, AttributeError):
                continue
    return None


class Address(NamedTuple):
    """Where a peer finds a mapping."""

    pid: int
    descriptor: int
    num_bytes: int
    token: int


def round_up(value: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return -(-value // unit) * unit


@final
class Arena:
    """One shared mapping: `memory` as bytes, `words` as 8-byte integers, `address` for the others.

    Costs its pages when they are touched, not before. Not safe to keep views of after the last reference
    is gone.

    >>> ours = Arena.create(100)
    >>> theirs = Arena.open(ours.address)
    >>> ours.words[3] = 7
    >>> theirs.words[3]
    7
    """

    def __init__(self, descriptor: int, address: Address) -> None:
        self._descriptor = descriptor
        self.address = address
        self._mapping = mmap.mmap(descriptor, address.num_bytes)
        # Larger pages where the machine allows them: fewer faults, fewer translations.
        with contextlib.suppress(OSError):
            self._mapping.madvise(MADV_HUGEPAGE)
        self.words = memoryview(self._mapping).cast("q")
        self.memory: Tensor = torch.frombuffer(self._mapping, dtype=torch.uint8)

    @classmethod
    def create(cls, num_bytes: int) -> "Arena":
        """A fresh mapping, filled with zeros."""
        total = round_up(num_bytes + 8, PAGE)
        descriptor = os.memfd_create("shoal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, total)
        fcntl.fcntl(
            descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        )
        arena = cls(descriptor, Address(os.getpid(), descriptor, total, secrets.randbits(62)))
        arena.words[-1] = arena.address.token
        return arena

    @classmethod
    def open(cls, address: Address) -> "Arena":
        """Map what another process on this machine made."""
        path = f"/proc/{address.pid}/fd/{address.descriptor}"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise JoinError(
                f"cannot open the shared memory of process {address.pid}: {error.strerror}",
                "Workers must run on one machine, as one user; otherwise use gloo.",
            ) from error
        if os.fstat(descriptor).st_size != address.num_bytes:
            os.close(descriptor)
            raise JoinError(f"{path} is not the shared memory of this group: it has another size")
        arena = cls(descriptor, address)
        if arena.words[-1] != address.token:
            arena.release()
            raise JoinError(f"{path} is not the shared memory of this group: it has another token")
        return arena

    def release(self) -> None:
        """Close the descriptor once all members have opened it; the mapping lives as long as its views.

        (Python's mmap keeps a duplicate of it until the mapping is freed.)
        """
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@final
class ArenaLayout:
    """Where things are in the arena of a group of `size`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._slots = size * BOARD_BYTES
        self._boxes = self._slots + size * NUM_SLOTS * SLOT_BYTES
        self._box_stride = CONTROL_BYTES + NUM_BOXES * BOX_BYTES
        self.num_bytes = round_up(self._boxes + size * size * self._box_stride, PAGE)

    def slot(self, rank: int, index: int) -> int:
        """The byte where a member's slot begins."""
        return self._slots + (rank * NUM_SLOTS + index) * SLOT_BYTES

    def box_control(self, sender: int, receiver: int) -> int:
        """The word where the control words of a pair begin."""
        return (self._boxes + (sender * self.size + receiver) * self._box_stride) // 8

    def box(self, sender: int, receiver: int, index: int) -> int:
        """The byte where a box of a pair begins."""
        return 8 * self.box_control(sender, receiver) + CONTROL_BYTES + index * BOX_BYTES


@final
class Board:
    """One member's words: all members read them, that member alone writes them."""

    def __init__(self, arena: Arena, rank: int) -> None:
        self.words = arena.words
        self._base = rank * BOARD_BYTES // 8
        self._text = arena.memory[8 * (self._base + _TEXT) : 8 * (self._base + _TEXT) + _TEXT_BYTES].numpy()
        self.posted = self._base + _POSTED
        """The index of the word that counts the rounds this member has posted."""
        self.alive = self._base + _ALIVE
        """The index of the word that holds the time of its last progress, or the end of the work it announced."""

    def header(self, slot: int) -> int:
        """The index of the header of a slot: code, numel, place of the piece, place of the whole."""
        return self._base + _HEADERS + 4 * slot

    def begin(self, stack_descriptor: int) -> None:
        """Report that this member has joined."""
        words = self.words
        words[self._base + _STATE + 1] = stack_descriptor
        words[self.alive] = time.monotonic_ns()

    @property
    def stack_descriptor(self) -> int:
        """Where the member's stacks can be read."""
        return self.words[self._base + _STATE + 1]

    def progress_ns(self) -> int:
        """When the member last made progress, on the machine's monotonic clock; 0 before it has begun."""
        return self.words[self.alive]

    def keep_alive(self, time_ns: int) -> None:
        """Move the time of this member's last progress forward, never back."""
        if time_ns > self.words[self.alive]:
            self.words[self.alive] = time_ns

    def note_wait(self, world_rank: int) -> None:
        """Report that this member waits for another one."""
        self.words[self.alive + 1], self.words[self.alive + 2] = world_rank, time.monotonic_ns()

    def waits_for(self) -> int | None:
        """The rank in the world of the member that this one waits for; None if it does not wait."""
        rank, reported_ns = self.words[self.alive + 1], self.words[self.alive + 2]
        return rank if still_waits(reported_ns, self.progress_ns()) else None

    def end(self, error: BaseException | None, world_rank: int) -> None:
        """Report that this member ends, with an error or in good order; of several reports, the first is kept."""
        words, at = self.words, self._base + _STATE
        if words[at] == ENDED:
            return
        last = LastWords.of(error, world_rank)
        text = last.message.encode()[:_TEXT_BYTES]
        self._text[: len(text)] = memoryview(text)
        words[at + 2], words[at + 3], words[at + 4] = last.rank, REASONS.index(last.reason), len(text)
        words[at] = ENDED

    def last_words(self) -> LastWords | None:
        """Why the member has ended, if it reported that."""
        words, at = self.words, self._base + _STATE
        if words[at] != ENDED:
            return None
        message = bytes(self._text[: words[at + 4]]).decode(errors="ignore")
        return LastWords(REASONS[words[at + 3]], words[at + 2], message)
