"""Start workers: one per place. A place says where and how a worker runs.

There are two kinds of places: a thread (`threads.ThreadPlace`) and a process of this machine
(`processes.ProcessPlace`). Another kind, such as a network namespace or another machine, is one more class with
`start`. A restart is another `start` of the same task.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from shoal.launch.handle import WorkerHandle, end_all

Task = TypeVar("Task", contravariant=True)
Handle = TypeVar("Handle", bound=WorkerHandle, covariant=True)


class WorkerPlace(Protocol[Task, Handle]):
    """Where and how one worker runs."""

    def start(self, task: Task, rank: int, size: int) -> Handle:
        """Start the worker of this rank, and return at once."""
        ...


def start(task: Task, places: Sequence[WorkerPlace[Task, Handle]]) -> list[Handle]:
    """Start the task in every place; the worker in the first one is rank 0. If one cannot start, none is left."""
    handles: list[Handle] = []
    try:
        for rank, place in enumerate(places):
            handles.append(place.start(task, rank, len(places)))
    except BaseException:
        end_all(handles)
        raise
    return handles
