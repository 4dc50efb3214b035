"""A shared-memory group whose messages several threads may use: one call at a time, and a thread moves long ones on.

A shared-memory group belongs to one thread, and its messages move when that thread calls it. Links need more: the
threads of several lanes send and receive, and a long message must go on while its sender computes.
"""

import threading
import time
from collections.abc import Sequence
from typing import Self, final

from torch import Tensor

from shoal.comm.blocking import BlockingThread
from shoal.comm.group import Group, Receipt, Work
from shoal.comm.shared_memory.progress import SLEEP_S, YIELD_S
from shoal.comm.signature import Signature
from shoal.comm.wrapped_group import WrappedGroup


@final
class Serialised(WrappedGroup):
    """The same group, for messages from any thread."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self._lock = threading.Lock()
        self._mover: BlockingThread | None = None

    def issue_send(self, call: Signature, tensor: Tensor, to: int) -> Work:
        """Send to one member. What does not leave at once leaves while the caller does something else."""
        with self._lock:
            work = SerialisedWork(self._group.issue_send(call, tensor, to), self._lock)
        if not work.done():
            if self._mover is None:
                self._mover = BlockingThread("shoal long messages")
            self._mover.add(work.wait)
        return work

    def issue_recv(self, call: Signature, tensor: Tensor, sender: int) -> Receipt:
        """Receive a message."""
        with self._lock:
            return SerialisedReceipt(self._group.issue_recv(call, tensor, sender), self._lock)

    def around(self, group: Group, ranks: Sequence[int]) -> Self:
        """The same wrapper around a smaller group of these ranks."""
        return type(self)(group)

    def close(self) -> None:
        """Leave the group."""
        if self._mover is not None:
            self._mover.close()
            self._mover = None
        with self._lock:
            super().close()


class SerialisedWork:
    """A message that any thread may wait for."""

    def __init__(self, work: Work, lock: threading.Lock) -> None:
        self._work, self._lock = work, lock

    def wait(self) -> None:
        """Look until it is over, as the group itself waits; other threads have their turns between two looks."""
        started = time.monotonic()
        while not self.done():
            time.sleep(0.0 if time.monotonic() - started < YIELD_S else SLEEP_S)

    def done(self) -> bool:
        """Whether it is over. Asking moves it forward."""
        with self._lock:
            return self._work.done()


@final
class SerialisedReceipt(SerialisedWork):
    """A message to come."""

    def __init__(self, receipt: Receipt, lock: threading.Lock) -> None:
        super().__init__(receipt, lock)
        self._receipt = receipt

    @property
    def source(self) -> int:
        """The rank that sent the message."""
        return self._receipt.source
