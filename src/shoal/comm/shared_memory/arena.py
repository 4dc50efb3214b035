"""Memory that several processes share and that has no name in the file system.

It is a `memfd`: peers open it through `/proc/<pid>/fd/<n>` while its maker keeps the descriptor, and once all have
mapped it the descriptor is closed. So no death at any moment leaves anything behind, and the size of `/dev/shm` does
not matter. It is sealed against growing and shrinking, so that no peer can truncate it. A random token at the end
detects a descriptor that belongs to something else.
"""

import contextlib
import fcntl
import mmap
import os
import secrets
from typing import NamedTuple, final

import torch
from torch import Tensor

from shoal.errors import JoinError

PAGE = mmap.PAGESIZE
MADV_HUGEPAGE = 14


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
