"""Workers as threads of this process: for debuggers, where a breakpoint works in every rank, and for tests."""

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar, final

import torch

from shoal.comm.assigned_group import Assignment, assigned
from shoal.comm.threads.group import ThreadGroup
from shoal.launch.failure import failure_of
from shoal.launch.handles import WorkerHandle, start
from shoal.launch.hangs.standing import Place, stack_of_thread
from shoal.launch.one_worker import closing_group
from shoal.launch.supervise import Policy, supervise

END_S = 1.0
"""How long a thread may take to end after it was asked to."""

Value = TypeVar("Value")


def run(size: int, work: Callable[[ThreadGroup], Value], limit_s: float | None = None) -> list[Value]:
    """Run `work(group)` on one thread per rank and return the values in rank order; raise the first failure.

    >>> run(3, lambda group: group.rank + group.size)
    [3, 4, 5]
    """
    groups = ThreadGroup.world(size, limit_s)
    handles = start([lambda rank: ThreadHandle(rank, work, groups[rank])] * size)
    supervise(handles, Policy())
    return [handle.values[0] for handle in handles]


@final
class ThreadHandle(WorkerHandle, Generic[Value]):
    """A thread. It shares our memory, so it sets its value or failure here; its pipe only says that it has ended."""

    def __init__(self, rank: int, work: Callable[[ThreadGroup], Value], group: ThreadGroup) -> None:
        read_end, self._write_end = os.pipe()
        super().__init__(rank, read_end)
        self.values: list[Value] = []
        self._work, self._group = work, group
        self._thread = threading.Thread(target=self._run, name=f"rank {rank}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            # Gradient mode belongs to the thread, and a debugger may have changed this one's.
            with torch.enable_grad(), closing_group(self._group):
                self._group.beat()  # from here on, the group knows which thread this rank is
                with assigned(Assignment(self._group)):  # for `shoal.join()`
                    self.values.append(self._work(self._group))
            self.finished = True
        except BaseException as error:  # whatever it is, the supervisor raises it in its own thread
            self.cause, self.failure = error, failure_of(error)
        finally:
            os.close(self._write_end)

    def poll(self) -> int | None:
        """0 or 1; None while it runs."""
        if self.finished:
            return 0
        return 1 if self.failure or not self._thread.is_alive() else None

    def stack(self) -> list[Place]:
        """Where it is."""
        return stack_of_thread(self._thread.ident or 0)

    def send_signal(self, number: int) -> None:
        """Nothing: signals belong to the process."""

    def kill(self) -> None:
        """Make the thread raise SystemExit at its next line of Python.

        A thread cannot be killed: in native code that never returns, it ends only with the process.
        """
        with contextlib.suppress(SystemError):
            if self.poll() is None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(SystemExit)
                )

    def close(self, wait_s: float) -> bool:
        """Wait for its end; one in native code that never returns ends with the process, and that is no error."""
        self._thread.join(min(wait_s, END_S))
        super().close(wait_s)
        return True
