"""The group that a launcher assigned to this worker, or the kind of group it is to form: read by `shoal.join()`."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from shoal.comm.group import Group


@dataclass(frozen=True)
class Assignment:
    """What a launcher has prepared for one worker."""

    group: Group | None = None
    """The group itself, where it already exists (threads)."""
    kind: str = "auto"
    """The kind of group to form (processes), unless the program chooses one."""


# Every thread has its own value, so the same program finds a different rank in each.
_assignment: ContextVar[Assignment] = ContextVar("_assignment", default=Assignment())  # noqa: B039 - it is frozen


def assignment() -> Assignment:
    """What was assigned to this thread; nothing, if no launcher started it."""
    return _assignment.get()


@contextmanager
def assigned(given: Assignment) -> Generator[None]:
    """Assign a group to the program that runs inside, in this thread."""
    token = _assignment.set(given)
    try:
        yield
    finally:
        _assignment.reset(token)
