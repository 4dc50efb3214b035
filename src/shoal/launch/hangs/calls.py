"""A call of a torch process group, as the workers compare it."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from shoal.comm.over_torch.torch_calls import MESSAGES

_ARITHMETIC = ("all_reduce", "reduce")
_SAME_BYTES = (*_ARITHMETIC, "broadcast", "all_gather")
"""Operations in which every worker passes a piece of the same size."""
_SEPARATOR = "\t"
_LENGTH = struct.Struct("=H")
LONGEST = 480
"""Bytes of a call; of a group of a hundred ranks only the first are kept."""
MEETING = "meeting"
"""The key of a call in which all workers meet at the store, such as `new_group`."""


class Call(NamedTuple):
    """The `number`-th collective of a group, or a message."""

    key: str
    """The group, the same on all of its members and for no other group."""
    group: str
    """The group in words: world, world[0,2]."""
    number: int
    """Counts the collectives of the group from 1; of messages, the collectives before it."""
    operation: str
    shape: str = ""
    """The piece: float32[1000]; empty where there is none."""
    num_bytes: int = -1
    """The size of the piece; -1 where the pieces of the workers may differ, or it is unknown."""
    peer: int = -1
    """The other side of a message, or the root, as a rank of the group."""

    def __str__(self) -> str:
        moved = f", {self.shape}" if self.shape else ""
        if self.is_message:
            way = "to" if self.operation == "send" else "from"
            return (
                f"{self.operation} {way} rank {self.partner()}{moved}" if self.peer >= 0 else self.operation
            )
        if self.key == MEETING:
            return self.operation
        return f"{self.operation} #{self.number} of {self.group}{moved}"

    @property
    def is_message(self) -> bool:
        """Whether it is a `send` or a `recv`."""
        return self.operation in MESSAGES

    def members(self, size: int) -> list[int]:
        """The ranks of the group.

        >>> Call("0", "world[1,3]", 1, "barrier").members(4)
        [1, 3]
        """
        _, _, inside = self.group.rstrip("]").partition("[")
        ranks = [int(word) for word in inside.split(",") if word.isdigit()]
        return ranks or list(range(size))

    def partner(self) -> int:
        """The other side of a message, as a rank of the world."""
        ranks = self.members(0)
        return ranks[self.peer] if 0 <= self.peer < len(ranks) else self.peer

    def agrees(self, other: "Call") -> bool:
        """Whether two members may call this together.

        >>> call = Call("0", "world", 1, "all_reduce", "float32[8]", 32)
        >>> call.agrees(call._replace(shape="int32[8]")), call._replace(operation="gather").agrees(call)
        (False, False)
        """
        if self.operation != other.operation:
            return False
        if self.peer >= 0 and other.peer >= 0 and self.peer != other.peer and not self.is_message:
            return False
        if self.operation not in _SAME_BYTES or -1 in (self.num_bytes, other.num_bytes):
            return True
        if self.operation in _ARITHMETIC and self.shape != other.shape:
            return False
        return self.num_bytes == other.num_bytes

    def packed(self) -> bytes:
        """As bytes that `unpacked` reads, without the number: equal bytes are equal calls."""
        words = (self.key, self.operation, self.shape, self.num_bytes, self.peer, self.group)
        text = _SEPARATOR.join(map(str, words)).encode()
        if len(text) > LONGEST:
            text = text[:LONGEST].rpartition(b",")[0]
        return _LENGTH.pack(len(text)) + text

    @classmethod
    def unpacked(cls, number: int, packed: bytes) -> "Call":
        """The call that `packed` wrote; what follows it is ignored.

        >>> call = Call("0", "world", 1, "all_reduce", "float32[8]", 32)
        >>> Call.unpacked(1, call.packed() + b"more") == call
        True
        """
        (length,) = _LENGTH.unpack_from(packed)
        words = packed[_LENGTH.size : _LENGTH.size + length].decode(errors="replace").split(_SEPARATOR)
        key, operation, shape, num_bytes, peer, group = words
        return cls(key, group, number, operation, shape, int(num_bytes), int(peer))


def odd_ones(calls: Sequence[Call]) -> list[int]:
    """The positions of the calls that differ from most; of two that differ, none is the odd one.

    >>> call = Call("0", "world", 1, "barrier")
    >>> odd_ones([call, call, call._replace(operation="all_reduce")])
    [2]
    """
    alike = [sum(call.agrees(other) for other in calls) for call in calls]
    most = max(alike, default=0)
    return [place for place, count in enumerate(alike) if count < most] if 2 * most > len(calls) else []
