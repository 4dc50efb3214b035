"""The calls of torch's process groups: the list of their methods, how they are replaced, what a call moves.

`launch/hangs/` watches them in programs of torch's, and `profile/` measures them.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor


class Operation(NamedTuple):
    """A method of torch's process groups."""

    name: str
    piece: int = 0
    """The argument that has this worker's piece."""


METHODS = {
    "allreduce": Operation("all_reduce"), "allreduce_coalesced": Operation("all_reduce"),
    "broadcast": Operation("broadcast"), "reduce": Operation("reduce"), "barrier": Operation("barrier"),
    "allgather": Operation("all_gather", 1), "_allgather_base": Operation("all_gather", 1),
    "all_gather_single": Operation("all_gather", 1), "allgather_coalesced": Operation("all_gather", 1),
    "allgather_into_tensor_coalesced": Operation("all_gather", 1), "gather": Operation("gather", 1),
    "scatter": Operation("scatter"), "reduce_scatter": Operation("reduce_scatter"),
    "_reduce_scatter_base": Operation("reduce_scatter"), "reduce_scatter_single": Operation("reduce_scatter"),
    "reduce_scatter_tensor_coalesced": Operation("reduce_scatter"), "alltoall": Operation("all_to_all", 1),
    "send": Operation("send"), "recv": Operation("recv"), "recv_anysource": Operation("recv"),
}  # fmt: skip
MESSAGES = ("send", "recv")


def replace(undo: ExitStack, place: Any, name: str, by: Callable[[Any], Any]) -> None:
    """Put `by(function)` in the place of a function until `undo` ends; nothing where this version of torch has none."""
    if not hasattr(place, name):
        return
    if name in vars(place):
        undo.callback(setattr, place, name, vars(place)[name])
    else:
        undo.callback(delattr, place, name)
    setattr(place, name, by(getattr(place, name)))


def replace_methods(
    undo: ExitStack, by: Callable[[Callable[..., Any], Operation], Callable[..., Any]]
) -> None:
    """Put `by(method, operation)` in the place of every method that issues a call."""
    for name, operation in METHODS.items():
        replace(undo, dist.ProcessGroup, name, lambda method, of=operation: by(method, of))


def piece_of(operation: Operation, args: tuple[Any, ...]) -> Tensor | None:
    """The first tensor of this worker's piece."""
    return first_tensor(args[operation.piece]) if len(args) > operation.piece else None


def first_tensor(given: Any) -> Tensor | None:
    """The tensor, or the first one in lists, tuples and dictionaries; None if there is none."""
    if isinstance(given, Tensor):
        return given
    if isinstance(given, Mapping):
        given = [*given.values()]
    found = map(first_tensor, given if isinstance(given, list | tuple) else ())
    return next((tensor for tensor in found if tensor is not None), None)


def peer_of(operation: Operation, args: tuple[Any, ...]) -> int:
    """The other side of a message, as a rank of the group; -1 where there is none or any."""
    return args[1] if operation.name in MESSAGES and len(args) > 2 else -1


def name_of(group: Any) -> str:
    """`world`, or for a smaller group `world[0,2]`, as our own groups are called."""
    ranks = dist.get_process_group_ranks(group)
    return "world" if len(ranks) == dist.get_world_size() else f"world[{','.join(map(str, ranks))}]"
