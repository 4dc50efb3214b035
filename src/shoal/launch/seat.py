"""`shoal.join()`: what a program calls to get its group, whoever started it.

A launcher prepares a *seat* for the program: as a thread, the group itself; as a process, the kind of group that the
user asked for. Without one the environment tells (torchrun, or by hand), and without that the program is alone.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from shoal.comm import join as joining
from shoal.comm.group import NO_PROGRESS_LIMIT_S, Group
from shoal.comm.rendezvous import JOIN_TIMEOUT_S


@dataclass(frozen=True)
class Seat:
    """What a launcher has prepared."""

    group: Group | None = None
    """The group, where it already exists."""
    kind: str = "auto"
    """The kind of group to form, where the program does not say."""


# Each thread sees its own: that is how the same program finds a different rank in every one.
_seat: ContextVar[Seat] = ContextVar("_seat", default=Seat())  # noqa: B039 - a Seat is frozen


@contextmanager
def take(seat: Seat) -> Generator[None]:
    """Run a program on this seat, in this thread."""
    token = _seat.set(seat)
    try:
        yield
    finally:
        _seat.reset(token)


def join(
    *,
    kind: str = "auto",
    limit_s: float = NO_PROGRESS_LIMIT_S,
    timeout_s: float = JOIN_TIMEOUT_S,
    facts: Mapping[str, str] | None = None,
) -> Group:
    """The group of this worker, however it was started; a world of one when nobody launched it.

    `kind` is auto, shm, gloo or nccl; auto takes shared memory on one machine, gloo elsewhere. A member that makes no
    progress for `limit_s` is given up; not all there after `timeout_s` is an error; `facts` must agree on all. A
    program that joins again gets the same group as long as it is open; see `shoal.comm.join.join`.

    >>> import torch
    >>> group = join()
    >>> total = torch.tensor([1.0])
    >>> group.all_reduce(total).wait()
    >>> group.rank, group.size, total
    (0, 1, tensor([1.]))
    """
    seat = _seat.get()
    if seat.group is not None:
        return seat.group
    chosen = seat.kind if kind == "auto" else kind
    return joining.join(kind=chosen, limit_s=limit_s, timeout_s=timeout_s, facts=facts)
