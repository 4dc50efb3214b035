"""One collective under way on one member, and the plan that all collectives of its signature share."""

from collections.abc import Sequence
from typing import final

from torch import Tensor

from shoal.comm.shared_memory.board import SLOT_BYTES
from shoal.comm.shared_memory.direct import Direct
from shoal.comm.shared_memory.progress import Channel, Pending, ProgressEngine
from shoal.comm.shared_memory.staged import STAGED
from shoal.comm.signature import FILLS_WHOLE, Signature, encode

SMALL_BYTES = 256 * 1024
"""Up to this many bytes in the slots of all members together a collective is one round."""


@final
class Plan:
    """How a collective of one signature goes: worked out once, because a step repeats its calls."""

    __slots__ = ("block", "call", "code", "fills_whole", "give", "numel", "small", "take")

    def __init__(self, call: Signature, size: int) -> None:
        way = STAGED[call.operation]
        self.call, self.code, self.numel = call, encode(call), call.numel
        self.give, self.take = way.give, way.take
        self.fills_whole = call.operation in FILLS_WHOLE
        width = call.dtype.itemsize * (size if way.rows else 1)
        self.small = call.numel * width * size <= SMALL_BYTES
        self.block = max(1, call.numel if self.small else SLOT_BYTES // width)
        """Elements of the piece per round."""

    def table(self, tensor: Tensor) -> Tensor:
        """A flat whole as a table, one piece in each row."""
        return tensor.view(-1, self.numel) if self.numel else tensor.view(1, 0)


@final
class Collective(Pending):
    """One collective: its flat tensors, and `target`, the strided tensor that gets the result of a copy."""

    __slots__ = ("blocks", "direct", "num_rounds", "piece", "plan", "sequence", "target", "whole")

    def __init__(
        self,
        progress: ProgressEngine,
        channel: Channel,
        plan: Plan,
        piece: Tensor,
        whole: Tensor | None,
        target: Tensor | None,
        sequence: int,
    ) -> None:
        super().__init__(progress, channel)
        self.plan, self.piece, self.whole = plan, piece, whole
        self.target, self.sequence = target, sequence
        self.direct: Direct | None = None
        self.num_rounds = 1
        """Of a large collective this is known, and set, once all headers have been seen."""
        self.blocks: Sequence[tuple[Tensor, Tensor | None]] = ()
        """What of the piece and of the whole goes through the slots in each round."""

    def cut(self) -> None:
        """Cut the tensors of a large collective into blocks, where they go through slots."""
        plan, block = self.plan, self.plan.block
        is_table = plan.call.operation == "all_to_all"
        pieces = (plan.table(self.piece) if is_table else self.piece).split(block, dim=-1)
        rows = [None] * len(pieces) if self.whole is None else plan.table(self.whole).split(block, dim=1)
        self.blocks = list(zip(pieces, rows, strict=True))
