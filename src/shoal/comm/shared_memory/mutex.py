"""A mutex for the members of a group on one machine: the lock of a file without a name."""

import fcntl
import os
import time
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import final

import torch

from shoal.comm.group import Group
from shoal.comm.liveness.limits import LOOK_EVERY_S
from shoal.errors import JoinError

YIELD_S = 0.0005
"""How long a wait yields the processor before it sleeps: longer than what is done under a mutex."""
SLEEP_S = 0.0001


def wait_until(group: Group, is_met: Callable[[], bool], label: str) -> None:
    """Wait for something that another member writes to memory; raise when a member is dead, stopped or stuck.

    `label` says in errors what this member waits for.
    """
    started = time.monotonic()
    next_look = started + LOOK_EVERY_S
    while not is_met():
        now = time.monotonic()
        if now - started < YIELD_S:
            os.sched_yield()
        else:
            time.sleep(SLEEP_S)
        if now >= next_look:
            group.check_members(label, now - started)
            next_look = now + LOOK_EVERY_S


@final
class Mutex:
    """`with mutex:` one member of a group at a time. Making it is a collective of a group that `maps_memory`.

    All members open one file that only they know (`memfd`), and take its `flock`. A free lock costs one system call,
    and giving it back another. A member that takes the lock sees everything that was written before it was given
    back. The kernel takes the lock from a process that dies, so no death blocks the others; they must find out
    themselves what it has left half done.

    Not safe: taking it twice, sharing one `Mutex` between threads, and forking: a child holds its parent's lock on.
    """

    def __init__(self, group: Group, label: str) -> None:
        """`label` says in errors what is locked."""
        self._group, self._label = group, label
        made = os.memfd_create("shoal-mutex", os.MFD_CLOEXEC) if group.rank == 0 else -1
        address = torch.tensor([os.getpid(), made])
        group.broadcast(address).wait()
        pid, descriptor = address.tolist()
        self._file = made if group.rank == 0 else open_of_member(pid, descriptor, os.O_RDWR)
        weakref.finalize(self, os.close, self._file)
        group.barrier().wait()  # the first member may end before the others have opened it

    def _try(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def __enter__(self) -> None:
        if not self._try():
            wait_until(self._group, self._try, self._label)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)


def open_of_member(pid: int, descriptor: int, mode: int) -> int:
    """Open what another process has open: a lock belongs to an open file, and copies of a descriptor would share it."""
    try:
        return os.open(f"/proc/{pid}/fd/{descriptor}", mode | os.O_CLOEXEC)
    except OSError as error:
        raise JoinError(
            f"cannot open what process {pid} shares: {error.strerror}",
            "Workers must run on one machine, as one user; otherwise use gloo.",
        ) from error
