"""A bell with which a worker wakes the server: a pipe that all ranks have open."""

import os
import select
import weakref
from typing import final

import torch

from shoal.comm.group import Group
from shoal.comm.shared_memory.mutex import open_of_member


@final
class Bell:
    """`ring` ends the `wait` of the rank that owns the bell: the one under way, or else the next.

    The owner sleeps in the kernel meanwhile, and takes no processor from the others. Making it is a collective of a
    group that `maps_memory`.
    """

    def __init__(self, group: Group, owner: int) -> None:
        self._end = pipe_in = -1
        if group.rank == owner:
            self._end, pipe_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        address = torch.tensor([os.getpid(), pipe_in])
        group.broadcast(address, owner).wait()
        pid, descriptor = address.tolist()
        if group.rank != owner:
            # To read, too: a pipe that no process could read any more would refuse a late ring.
            self._end = open_of_member(pid, descriptor, os.O_RDWR)
        weakref.finalize(self, _close, self._end, pipe_in)
        group.barrier().wait()  # the owner may end before the others have opened it

    def ring(self) -> None:
        """Wake the owner; for the others."""
        os.write(self._end, b"!")

    def wait(self, at_most_s: float) -> None:
        """Sleep until another member rings; for the owner."""
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        if poll.poll(1000 * at_most_s):
            os.read(self._end, select.PIPE_BUF)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        if descriptor >= 0:
            os.close(descriptor)
