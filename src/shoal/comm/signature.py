"""The signature of a call, which all members must agree on: its checks, its encoding, the table of a mismatch."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, SupportsIndex

import torch
from torch import Tensor

from shoal.comm.reduction import Op, OpName, makes_sense
from shoal.config.kinds import accepts, expected
from shoal.errors import ArgumentError, GroupError, MismatchError

DTYPES: tuple[torch.dtype, ...] = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int32,
    torch.int64,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
)
"""What groups can move. Headers hold the position: the order is part of the protocol."""

OPERATIONS = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "barrier",
    "split",
    "empty",
    "message",
)
"""Every operation a header can name, by position. A message is what `send` and `recv` exchange."""

FILLS_WHOLE = ("all_gather", "gather")
"""Operations whose result is the whole; the result of all others is the piece."""

_OPS = (None, *Op)


class Signature(NamedTuple):
    """What all members must agree on in one call. `numel` counts the piece where there is a whole."""

    operation: str
    dtype: torch.dtype = torch.uint8
    numel: int = 0
    op: Op | None = None
    root: int | None = None

    def __str__(self) -> str:
        details: list[str] = []
        if self.operation not in ("barrier", "split"):
            details += [f"{self.numel} × {str(self.dtype).removeprefix('torch.')}"]
        details += [self.op.value] if self.op else []
        details += [f"root {self.root}"] if self.root is not None else []
        return f"{self.operation}({', '.join(details)})"


def signature_of(
    operation: str, size: int, tensor: Tensor, op: Op | OpName | None = None, root: int | None = None
) -> Signature:
    """The signature of a call with this tensor, after the checks that one member can make alone."""
    _check_tensors(operation, tensor)
    if op is not None and not isinstance(op, Op):
        try:
            op = Op(op)
        except ValueError:
            names = ", ".join(each.value for each in Op)
            raise GroupError(f"there is no reduction {op!r}", f"Possible: {names}.") from None
    return checked_signature(operation, size, tensor.dtype, tensor.numel(), op, root)


@lru_cache(maxsize=8192)
def checked_signature(
    operation: str,
    size: int,
    dtype: torch.dtype,
    numel: int,
    op: Op | None = None,
    root: int | None = None,
) -> Signature:
    """The signature of a call, if groups can carry it out."""
    if dtype not in DTYPES:
        raise GroupError(f"{operation} cannot move {dtype}", "Convert the tensor first.")
    if root is not None and not 0 <= root < size:
        raise GroupError(f"{operation} has root {root}, but the ranks are 0 to {size - 1}")
    if op is not None and not makes_sense(op, dtype):
        fitting = ", ".join(each.value for each in Op if makes_sense(each, dtype))
        raise GroupError(f"{operation} cannot take the {op.value} of {dtype}", f"Possible: {fitting}.")
    return Signature(operation, dtype, numel, op, root)


def _no_tensor(operation: str, value: object) -> ArgumentError:
    return ArgumentError(
        f"{operation}: expected a tensor, got a value of type {type(value).__name__}",
        "Convert numbers and lists with torch.tensor(…).",
    )


def _check_tensors(operation: str, *tensors: Tensor) -> None:
    for tensor in tensors:
        if not isinstance(tensor, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _no_tensor(operation, tensor)
        if tensor.is_nested or tensor.layout is not torch.strided:
            kind = "a nested tensor" if tensor.is_nested else f"a tensor of layout {tensor.layout}"
            raise GroupError(
                f"{operation} cannot move {kind}", "Convert it with to_dense() or to_padded_tensor()."
            )


def check_integer(operation: str, name: str, value: SupportsIndex) -> None:
    """Refuse what is no integer."""
    if not isinstance(value, int) and not accepts(SupportsIndex, value)[0]:
        raise ArgumentError(f"{operation}: {expected(int, value)} as {name}")


def check_whole(operation: str, size: int, whole: Tensor, piece: Tensor) -> None:
    """Refuse a whole that is not `size` pieces."""
    _check_tensors(operation, whole, piece)
    if whole.numel() != size * piece.numel() or whole.dtype != piece.dtype:
        raise GroupError(
            f"{operation}: the whole has {whole.numel()} × {whole.dtype}, "
            f"but {size} pieces of {piece.numel()} × {piece.dtype} make {size * piece.numel()}"
        )


def check_all_to_all(size: int, out: Tensor, whole: Tensor) -> None:
    """Refuse tensors that are not equally many equal pieces."""
    _check_tensors("all_to_all", out, whole)
    if out.numel() != whole.numel() or out.dtype != whole.dtype or out.numel() % size:
        raise GroupError(
            f"all_to_all: out has {out.numel()} × {out.dtype}, whole has {whole.numel()} × {whole.dtype}; "
            f"both must be {size} equal pieces"
        )


def check_root_whole(
    operation: str, rank: int, size: int, root: int, whole: Tensor | None, piece: Tensor
) -> None:
    """Refuse a root without its whole; what the others pass is ignored."""
    if rank == root:
        if whole is None:
            raise GroupError(f"{operation}: rank {rank} is the root and must pass the whole, not None")
        check_whole(operation, size, whole, piece)


def check_peer(operation: str, rank: int, size: int, peer: int) -> None:
    """Refuse a message to this member itself or to a rank that does not exist."""
    check_integer(operation, "the rank", peer)
    if not 0 <= peer < size or peer == rank:
        raise GroupError(
            f"{operation}: rank {rank} cannot reach rank {peer}",
            f"The ranks are 0 to {size - 1}, without {rank}.",
        )


def check_open(operation: str, left: bool) -> None:
    """Refuse a call on a group that this member has closed."""
    if left:
        raise GroupError(f"{operation}: this member has left the group", "It was closed.")


def encode(call: Signature) -> int:
    """The signature without its length, as one word that is never 0.

    >>> decode(encode(Signature("reduce", torch.int8, 0, Op.MIN, 3)), 5)
    Signature(operation='reduce', dtype=torch.int8, numel=5, op=<Op.MIN: 'min'>, root=3)
    """
    root = 0 if call.root is None else call.root + 1
    fields = OPERATIONS.index(call.operation) + 1 | DTYPES.index(call.dtype) << 8
    return fields | _OPS.index(call.op) << 16 | root << 24


def decode(code: int, numel: int) -> Signature:
    """The signature of a header."""
    root = code >> 24
    operation, dtype = OPERATIONS[(code & 255) - 1], DTYPES[code >> 8 & 255]
    return Signature(operation, dtype, numel, _OPS[code >> 16 & 255], root - 1 if root else None)


def check_split(rank: int, size: int, ranks: Sequence[int]) -> tuple[int, ...]:
    """The ranks of a smaller group: ascending, within the group, the caller among them."""
    chosen = tuple(ranks)
    if chosen != tuple(sorted(set(chosen))) or rank not in chosen or not 0 <= chosen[0] <= chosen[-1] < size:
        raise GroupError(
            f"rank {rank} cannot split off as {list(chosen)}",
            f"Give ascending ranks from 0 to {size - 1}, {rank} among them.",
        )
    return chosen


def check_agreement(lists: Sequence[Sequence[int]]) -> None:
    """Refuse a split whose members name different groups; `lists[i]` is what member i names. All refuse together.

    >>> check_agreement([[0, 1], [0, 1], [2]])
    >>> check_agreement([[0, 1], [1], [2]])
    Traceback (most recent call last):
        ...
    shoal.errors.MismatchError: split: ranks 0 and 1 name different groups:
        rank 0: [0, 1]
        rank 1: [1]
        rank 2: [2]
    """
    for rank, named in enumerate(lists):
        for other in named:
            if tuple(lists[other]) != tuple(named):
                table = "\n".join(f"    rank {member}: {list(ranks)}" for member, ranks in enumerate(lists))
                raise MismatchError(f"split: ranks {rank} and {other} name different groups:\n{table}")


def mismatch(sequence: int, calls: Mapping[int, Signature | str]) -> MismatchError:
    """The error for members that called different things as their `sequence`-th collective.

    >>> print(mismatch(7, {0: Signature("all_reduce", torch.float32, 10, Op.SUM), 1: Signature("barrier")}))
    members called different things as collective #7:
        rank 0: all_reduce(10 × float32, sum)
        rank 1: barrier()
      Every member must make the same calls in the same order.
    """
    table = "\n".join(f"    rank {rank}: {call}" for rank, call in sorted(calls.items()))
    return MismatchError(
        f"members called different things as collective #{sequence}:\n{table}",
        "Every member must make the same calls in the same order.",
    )


def message_mismatch(sender: int, receiver: int, sent: Signature, expected: Signature) -> MismatchError:
    """The error for a message that is not what the receiver expects."""
    return MismatchError(
        f"rank {sender} sent {sent.numel} × {sent.dtype} to rank {receiver}, "
        f"which expects {expected.numel} × {expected.dtype}",
        "The n-th send to a member meets the n-th recv from the sender.",
    )
