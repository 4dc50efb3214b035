"""What workers agree on besides tensors: a text, their largest number, that they have the same model."""

from collections.abc import Mapping

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.comm.reduction import Op
from shoal.errors import MismatchError, without_numbers


def share_text(group: Group, text: str, root: int = 0) -> str:
    """The root's text, on every worker."""
    if group.size == 1:
        return text
    data = torch.frombuffer(bytearray(text.encode() or b"\0"), dtype=torch.uint8).clone()
    length = torch.tensor([len(data) if text else 0])
    group.broadcast(length, root).wait()
    if not length.item():
        return ""
    received = data if group.rank == root else torch.empty(int(length), dtype=torch.uint8)
    group.broadcast(received, root).wait()
    return received.numpy().tobytes().decode()


def gather_texts(group: Group, text: str) -> list[str]:
    """All workers' texts, in rank order, on every worker."""
    if group.size == 1:
        return [text]
    data = torch.frombuffer(bytearray(text.encode() or b"\0"), dtype=torch.uint8).clone()
    lengths = torch.empty(group.size, dtype=torch.int64)
    group.all_gather(lengths, torch.tensor([len(data) if text else 0])).wait()
    longest = max(1, int(lengths.max()))
    padded = torch.zeros(longest, dtype=torch.uint8)
    padded[: len(data)] = data[:longest]
    rows = torch.empty(group.size, longest, dtype=torch.uint8)
    group.all_gather(rows, padded).wait()
    return [
        row[:length].numpy().tobytes().decode() for row, length in zip(rows, lengths.tolist(), strict=True)
    ]


def largest_of(group: Group, mine: int) -> int:
    """The largest of all workers' numbers: the same answer on all of them."""
    if group.size == 1:
        return mine
    number = torch.tensor([mine])
    group.all_reduce(number, Op.MAX).wait()
    return int(number.item())


def check_same_model(group: Group, params: Mapping[str, Tensor]) -> None:
    """Refuse to train replicas of different models; the error shows the first entry that differs, on both sides.

    Tensors on the meta device are refused, too.
    """
    if on_meta := [name for name, param in params.items() if param.is_meta]:
        raise without_numbers(on_meta[0])
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
    # The same error on all workers, whichever differs.
    differing = largest_of(group, group.rank if problem else -1)
    if differing >= 0:
        raise MismatchError(
            share_text(group, problem, differing), "Start every rank with the same settings and code."
        )
