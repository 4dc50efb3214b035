"""One collective under way on one member: its call, its flat tensors, and how it goes."""

from collections.abc import Sequence
from functools import lru_cache
from typing import final

from torch import Tensor

from shoal.comm.shared_memory.board import SLOT_BYTES
from shoal.comm.shared_memory.direct import Direct
from shoal.comm.shared_memory.progress import Pending
from shoal.comm.signature import Signature, encode

SMALL_BYTES = 256 * 1024
"""Up to this many bytes in the slots of all members together a collective is one round."""

_code_of = lru_cache(maxsize=8192)(encode)


@final
class Collective:
    """One collective of `size` members; each element of the piece takes `width` bytes of a slot."""

    __slots__ = (
        "after",
        "block",
        "call",
        "code",
        "direct",
        "num_rounds",
        "pending",
        "piece",
        "pieces",
        "rows",
        "sequence",
        "small",
        "whole",
    )

    def __init__(
        self,
        call: Signature,
        piece: Tensor,
        whole: Tensor | None,
        width: int,
        size: int,
        sequence: int,
        pending: Pending,
    ) -> None:
        self.call = call
        self.code = _code_of(call)
        self.piece = piece
        self.whole = whole
        self.sequence = sequence
        self.pending = pending
        self.after: tuple[Tensor, Tensor] | None = None
        """What is copied back at the end: (strided original, flat copy)."""
        self.direct: Direct | None = None
        self.small = call.numel * width * size <= SMALL_BYTES
        self.block = call.numel if self.small else max(1, SLOT_BYTES // width)
        """Elements per round."""
        self.pieces: Sequence[Tensor] = ()
        """What of the piece goes through the slots in each round."""
        self.rows: Sequence[Tensor] = ()
        """The same of the whole: that range of each of its pieces, one under the other."""
        self.num_rounds = 1
        """Of a large collective this is known, and set, once all headers have been seen."""
        if self.small:
            self.cut()

    def cut(self) -> None:
        """Cut the tensors into what the slots carry; not needed where nothing goes through slots."""
        is_table = self.call.operation == "all_to_all"
        self.pieces = self._blocks(self.piece, is_table)
        if self.whole is not None:
            self.rows = self._blocks(self.whole, True)

    def _blocks(self, tensor: Tensor, is_table: bool) -> Sequence[Tensor]:
        if is_table:
            tensor = tensor.view(-1, self.call.numel) if self.call.numel else tensor.view(1, 0)
        return (tensor,) if self.small else tensor.split(self.block, dim=-1)
