"""All ways of averaging that the lab compares: every collective of the course, and our algorithms on messages alone.

Each branch of the course is a function that reads like its name.

`branch(group, bucket)` leaves the sum of all workers' buckets in each of them. Every worker has divided its loss by the
number of samples of *all* workers, so this sum *is* the mean gradient of the batch, for uneven shares as well.

::

    all_reduce                 the group decides how
    reduce_broadcast           rank 0 receives the sum, and sends it
    gather_broadcast           rank 0 receives all buckets, adds them, and sends the sum
    gather_scatter             rank 0 receives all buckets, adds them, and deals out one copy to each
    reduce_then_scatter        rank 0 receives the sum and deals out slices, which everyone passes on
    all_gather                 everyone receives all buckets and adds them for itself
    reduce_scatter_all_gather  everyone receives the sum of one slice, and passes it on

Any of them can be given to a run: `--exchange shoal_labs.lab2.averaging:all_gather`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from shoal.kit.training import ALGORITHMS, Group

Branch = Callable[[Group, Tensor], None]
ROOT = 0


def all_reduce(group: Group, bucket: Tensor) -> None:
    """One collective does it all."""
    group.all_reduce(bucket).wait()


def reduce_broadcast(group: Group, bucket: Tensor) -> None:
    """The root receives the sum, and everyone receives it from the root."""
    group.reduce(bucket, ROOT).wait()
    group.broadcast(bucket, ROOT).wait()


def gather_broadcast(group: Group, bucket: Tensor) -> None:
    """The root receives every bucket and adds them itself; everyone receives the sum from it."""
    everyones = room_for_all(group, bucket)
    group.gather(everyones, bucket, ROOT).wait()
    if everyones is not None:
        sum_into(bucket, everyones, group.size)
    group.broadcast(bucket, ROOT).wait()


def gather_scatter(group: Group, bucket: Tensor) -> None:
    """The root receives every bucket, adds them, and deals out one copy of the sum to each."""
    everyones = room_for_all(group, bucket)
    group.gather(everyones, bucket, ROOT).wait()
    if everyones is not None:
        sum_into(bucket, everyones, group.size)
        everyones.view(group.size, bucket.numel()).copy_(bucket)
    group.scatter(bucket, everyones, ROOT).wait()


def reduce_then_scatter(group: Group, bucket: Tensor) -> None:
    """The root receives the sum and deals it out in slices; everyone passes its slice on to everyone."""
    whole = divisible(group, bucket)
    group.reduce(whole, ROOT).wait()
    my_slice = whole.new_empty(whole.numel() // group.size)
    group.scatter(my_slice, whole if group.rank == ROOT else None, ROOT).wait()
    group.all_gather(whole, my_slice).wait()
    bucket.copy_(whole[: bucket.numel()])


def all_gather(group: Group, bucket: Tensor) -> None:
    """Everyone receives every bucket and adds them up, all in the same order."""
    everyones = bucket.new_empty(group.size * bucket.numel())
    group.all_gather(everyones, bucket).wait()
    sum_into(bucket, everyones, group.size)


def reduce_scatter_all_gather(group: Group, bucket: Tensor) -> None:
    """Everyone receives the sum of one slice, and passes it on to everyone."""
    whole = divisible(group, bucket)
    my_slice = whole.new_empty(whole.numel() // group.size)
    group.reduce_scatter(my_slice, whole).wait()
    group.all_gather(whole, my_slice).wait()
    bucket.copy_(whole[: bucket.numel()])


def room_for_all(group: Group, bucket: Tensor) -> Tensor | None:
    """Memory for everyone's buckets, where they are gathered."""
    return bucket.new_empty(group.size * bucket.numel()) if group.rank == ROOT else None


def sum_into(bucket: Tensor, everyones: Tensor, size: int) -> None:
    """Make the bucket the sum of everyone's."""
    torch.sum(everyones.view(size, bucket.numel()), dim=0, out=bucket)


def divisible(group: Group, bucket: Tensor) -> Tensor:
    """A copy with zeros behind it, so that it can be cut into one equal slice for each worker."""
    missing = -bucket.numel() % group.size
    return torch.cat([bucket, bucket.new_zeros(missing)])


_CALLED: dict[Branch, tuple[str, ...]] = {
    all_reduce: ("all_reduce",),
    reduce_broadcast: ("reduce", "broadcast"),
    gather_broadcast: ("gather", "broadcast"),
    gather_scatter: ("gather", "scatter"),
    reduce_then_scatter: ("reduce", "scatter", "all_gather"),
    all_gather: ("all_gather",),
    reduce_scatter_all_gather: ("reduce_scatter", "all_gather"),
}
BRANCHES = {branch.__name__: branch for branch in _CALLED}
CALLS = {branch.__name__: calls for branch, calls in _CALLED.items()}
"""What each branch says that it calls; the record of a run shows what it did call."""

COURSE = tuple(BRANCHES)
MESSAGES = tuple(f"by:{name}" for name in ALGORITHMS)
"""Our algorithms, which use send and receive alone."""
ALL = (*COURSE, *MESSAGES)


def exchange_of(branch: str) -> str:
    """What `--exchange` is given for a branch.

    >>> exchange_of("all_gather"), exchange_of("by:ring")
    ('shoal_labs.lab2.averaging:all_gather', 'by:ring')
    """
    return branch if branch in MESSAGES else f"{__name__}:{branch}"


def calls_of(branch: str) -> frozenset[str]:
    """The operations of a group that a branch says it uses."""
    return frozenset(("send", "recv") if branch in MESSAGES else CALLS[branch])
