"""Reads ahead in processes of torch's DataLoader: the parts of the next steps, in their order."""

import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.util import get_temp_dir
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from shoal.data.dataset import Draw
from shoal.data.on_demand.read import Fault, Part, Read
from shoal.data.seeds import ONE_AT_A_TIME
from shoal.errors import DataError

Plan = Callable[[], Iterable[Part]]
"""The parts that will be asked for next."""


class Loaders:
    """`count` processes that live until `close`.

    A plan says what will be asked for. If something else is asked for, because a balanced run has changed its shares,
    reading starts again with the newest plan.
    """

    def __init__(self, read: Callable[[Part], Read | Fault], count: int, name: str) -> None:
        self._name, self._count = name, count
        self._plan: Plan | None = None
        self._planned = deque[Part]()
        self._results: Iterator[Any] | None = None
        self._loader = DataLoader(
            _Calls(read),
            batch_size=None,
            sampler=_Planned(self),
            num_workers=count,
            collate_fn=_unchanged,
            worker_init_fn=_begin,
            multiprocessing_context="fork",
            persistent_workers=True,
            generator=torch.Generator(),  # else it draws from the shared one
        )

    def follow(self, plan: Plan) -> None:
        """Use this plan when reading starts again."""
        self._plan = plan

    def take(self, numbers: Tensor, draw: Draw) -> Read | None:
        """The samples with these numbers; None if the plan does not begin with them."""
        if self._plan is None:
            return None
        found = self._next(numbers, draw)
        if found is None:
            self._restart()
            found = self._next(numbers, draw)
        if isinstance(found, Fault):
            raise DataError(found.message, found.hint)
        return found

    def close(self) -> None:
        """End the processes."""
        self._plan = self._results = None
        # Nothing else ends them at a known time.
        iterator: Any = self._loader._iterator  # pyright: ignore[reportPrivateUsage]
        if iterator is not None:
            iterator._shutdown_workers()
            self._loader._iterator = None  # pyright: ignore[reportPrivateUsage]

    def parts(self) -> Iterator[Part]:
        """The plan, remembered until its results arrive."""
        assert self._plan is not None
        for part in self._plan():
            self._planned.append(part)
            yield part

    def _restart(self) -> None:
        self._planned.clear()
        if self._results is not None:
            self._results = iter(self._loader)
            return
        # If another thread held a lock while this one forks, it would stay locked in the new process: this one, and
        # that of `tempfile`, which is taken until the folder is known where processes hand tensors to each other.
        with ONE_AT_A_TIME, _keeping_handler(signal.SIGCHLD):
            get_temp_dir()
            self._results = iter(self._loader)

    def _next(self, numbers: Tensor, draw: Draw) -> Read | Fault | None:
        if self._results is None or not self._planned:
            return None
        planned, planned_draw = self._planned[0]
        if draw != planned_draw or not torch.equal(numbers, planned):
            return None
        try:
            found = next(self._results)
        except (RuntimeError, OSError, EOFError) as error:  # it may end between sending a part and its memory
            reason = str(error) or type(error).__name__
            raise DataError(
                f"data {self._name}: a loader process ended before its work was done: {reason}",
                f"If memory was short, use fewer than --data.loaders {self._count}.",
            ) from error
        self._planned.popleft()
        return found


class _Calls(Dataset[Any]):
    """What a loader process reads: a part at a time."""

    def __init__(self, read: Callable[[Part], Read | Fault]) -> None:
        self._read = read

    def __getitem__(self, part: Part) -> Read | Fault:
        return self._read(part)


class _Planned(Sampler[Part]):
    """The sampler of the newest plan."""

    def __init__(self, loaders: Loaders) -> None:
        self._loaders = loaders

    def __iter__(self) -> Iterator[Part]:
        return self._loaders.parts()


@contextmanager
def _keeping_handler(number: signal.Signals) -> Generator[None]:
    """Undo torch's change of a handler: its own raises at any place of the program when a process ends."""
    before = signal.getsignal(number)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(number, before)


def _unchanged(found: Any) -> Any:
    return found


def _begin(_: int) -> None:
    """In a new loader process: leave stops to the worker, which finishes its step and needs its samples for that."""
    ONE_AT_A_TIME.release()  # held by the thread that forked
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A launcher that stops a whole group sends one signal; a second one ends a process that hangs.
    signal.signal(signal.SIGTERM, lambda number, _: signal.signal(number, signal.SIG_DFL))
