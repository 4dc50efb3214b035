"""What workers must agree on besides gradients: a text, a wish to stop, and that they hold the same model."""

from collections.abc import Mapping

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.comm.reduction import Op
from shoal.errors import MismatchError


def share_text(group: Group, text: str) -> str:
    """Rank 0's text, on every worker."""
    if group.size == 1:
        return text
    data = torch.frombuffer(bytearray(text.encode() or b"\0"), dtype=torch.uint8).clone()
    length = torch.tensor([len(data) if text else 0])
    group.broadcast(length).wait()
    if not length.item():
        return ""
    received = data if group.rank == 0 else torch.empty(int(length), dtype=torch.uint8)
    group.broadcast(received).wait()
    return received.numpy().tobytes().decode()


def largest_of(group: Group, mine: int) -> int:
    """The largest of all workers' numbers: the same answer on all of them."""
    if group.size == 1:
        return mine
    number = torch.tensor([mine])
    group.all_reduce(number, Op.MAX).wait()
    return int(number.item())


def check_same_model(group: Group, params: Mapping[str, Tensor]) -> None:
    """Refuse to train replicas of different models: the first entry that differs is shown from both sides."""
    mine = [
        f"{name} {tuple(param.shape)} {str(param.dtype).removeprefix('torch.')}"
        for name, param in params.items()
    ]
    first = share_text(group, "\n".join(mine)).split("\n")
    problem = ""
    if mine != first:
        position = next(
            (index for index, (ours, theirs) in enumerate(zip(mine, first, strict=False)) if ours != theirs),
            min(len(mine), len(first)),
        )
        ours = mine[position] if position < len(mine) else "nothing"
        theirs = first[position] if position < len(first) else "nothing"
        problem = (
            f"rank {group.rank} has another model: parameter {position} is {ours}; on rank 0 it is {theirs}"
        )
    if largest_of(group, bool(problem)):
        raise MismatchError(
            problem or "another worker holds another model than rank 0",
            "Start every rank with the same settings and code.",
        )
