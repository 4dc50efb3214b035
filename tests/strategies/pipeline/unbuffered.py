"""Messages between threads without any buffer: a send blocks until it is received, a receive until it is sent.

No real transport is as strict, so what ends here ends everywhere.
"""

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

from shoal.comm.group import Finished

Result = TypeVar("Result")


class DeadlockError(Exception):
    """A message that the other side did not meet in time."""


class Channel:
    """From one worker to another: the sender leaves when the receiver has the tensor."""

    def __init__(self) -> None:
        self.offered: queue.Queue[Tensor] = queue.Queue(1)
        self.taken = threading.Semaphore(0)


class UnbufferedMessenger:
    """Has `rank`, `size`, `send` and `recv` of a group."""

    def __init__(self, rank: int, channels: list[list[Channel]], timeout_s: float) -> None:
        self.rank, self.size = rank, len(channels)
        self._channels, self._timeout_s = channels, timeout_s

    def send(self, tensor: Tensor, to: int) -> Finished:
        channel = self._channels[self.rank][to]
        channel.offered.put(tensor)
        if not channel.taken.acquire(timeout=self._timeout_s):
            raise DeadlockError(f"{self.rank} sends to {to}")
        return Finished()

    def recv(self, tensor: Tensor, sender: int) -> Finished:
        channel = self._channels[sender][self.rank]
        try:
            tensor.copy_(channel.offered.get(timeout=self._timeout_s))
        except queue.Empty:
            raise DeadlockError(f"{self.rank} receives from {sender}") from None
        channel.taken.release()
        return Finished()


def run_unbuffered(
    size: int, work: Callable[[UnbufferedMessenger], Result], timeout_s: float = 60.0
) -> list[Result]:
    """Run `work` on `size` threads; their results in order, or the first failure."""
    channels = [[Channel() for _ in range(size)] for _ in range(size)]
    results: dict[int, Result] = {}
    failures: list[BaseException] = []

    def run(messenger: UnbufferedMessenger) -> None:
        try:
            results[messenger.rank] = work(messenger)
        except BaseException as failure:
            failures.append(failure)

    threads = [
        threading.Thread(target=run, args=(UnbufferedMessenger(rank, channels, timeout_s),))
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [results[rank] for rank in range(size)]
