"""Workers as threads of this process: for debuggers, where a breakpoint works in every rank, and for tests."""

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import torch

from shoal.comm.group import NO_PROGRESS_LIMIT_S
from shoal.comm.threads import ThreadGroup
from shoal.errors import MemberError
from shoal.launch.failure import failure_of, told_by_worker
from shoal.launch.membership import membership

GRACE_S = 3.0
"""How long the others may take to end by themselves after the first failure."""
GO_S = 1.0
"""How long a thread that was told to go may take to go."""

Value = TypeVar("Value")


def run(size: int, work: Callable[[ThreadGroup], Value], limit_s: float = NO_PROGRESS_LIMIT_S) -> list[Value]:
    """Run `work(group)` on one thread per rank and give the values in rank order; the first failure is raised.

    A thread cannot be killed. One that does not end by itself is made to raise SystemExit at its next line of Python;
    from native code that never returns there is no way out, and it ends with the process.

    >>> run(3, lambda group: group.rank + group.size)
    [3, 4, 5]
    """
    values: dict[int, Value] = {}
    failures: list[tuple[int, BaseException]] = []

    def member(group: ThreadGroup) -> None:
        # Whether gradients are recorded is a thread's own setting, and a debugger's thread may have changed it.
        try:
            with torch.enable_grad(), membership(group):
                group.beat()  # from here on, the group knows which thread this rank is
                values[group.rank] = work(group)
        except BaseException as error:  # whatever it is, it is raised below, in the thread that asked
            failures.append((group.rank, error))

    threads = [
        threading.Thread(target=member, args=(group,), name=f"rank {group.rank}", daemon=True)
        for group in ThreadGroup.world(size, limit_s)
    ]
    try:
        for thread in threads:
            thread.start()
        _wait(threads, failures)
    finally:
        seen = list(failures)  # what follows is our own doing
        _end(threads)
    if seen:
        # What a worker suffered because another had failed is no news.
        rank, error = next((each for each in seen if not isinstance(each[1], MemberError)), seen[0])
        raise told_by_worker(rank, size, failure_of(error)) from error
    return [values[rank] for rank in range(size)]


def _wait(threads: list[threading.Thread], failures: list[tuple[int, BaseException]]) -> None:
    failed_at = 0.0
    for thread in threads:
        while thread.is_alive():
            thread.join(0.05)  # a join without limit would keep signals from being handled
            if failures:
                failed_at = failed_at or time.monotonic()
                if time.monotonic() - failed_at > GRACE_S:
                    return


def _end(threads: list[threading.Thread]) -> None:
    alive = [thread for thread in threads if thread.is_alive()]
    for thread in alive:
        with contextlib.suppress(SystemError):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)
            )
    deadline = time.monotonic() + GO_S
    for thread in alive:
        thread.join(max(0.0, deadline - time.monotonic()))
