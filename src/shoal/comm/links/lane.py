"""Messages among some of a courier's members: the messenger that algorithms get."""

from collections.abc import Sequence
from typing import final

from torch import Tensor

from shoal.comm.group import ANYONE
from shoal.comm.links.courier import POLL_S, Courier, ParcelSlot
from shoal.comm.signature import Signature, check_peer, checked_signature


@final
class Sending:
    """A message on the wire: over when its last byte has left."""

    def __init__(self, courier: Courier, gone_ns: int) -> None:
        self._courier, self._gone_ns = courier, gone_ns

    def wait(self) -> None:
        """Wait until the wire has taken all of it."""
        self._courier.sleep_until(self._gone_ns)

    def done(self) -> bool:
        """Whether it has taken all of it."""
        return self._courier.is_past(self._gone_ns)


@final
class Receiving:
    """A message that is to come: over when its last byte has arrived."""

    def __init__(
        self, courier: Courier, slot: ParcelSlot, tensor: Tensor, expected: Signature, source: int
    ) -> None:
        self._courier, self._slot, self._tensor, self._expected = courier, slot, tensor, expected
        self.source = source
        self._over = False

    def wait(self) -> None:
        """Wait until it has come and is due, then copy it to its tensor."""
        if self._over:
            return
        parcel = self._courier.wait(self._slot)
        self._courier.sleep_until(parcel.due_ns)
        self._courier.put(parcel, self._slot.sender, self._tensor, self._expected)
        self._over = True

    def done(self) -> bool:
        """Whether it is there; asking receives it."""
        if not self._over and self._courier.is_here(self._slot):
            self.wait()
        return self._over


@final
class ReceivingFromAnyone:
    """A message that is to come from any member of a lane: over when the last byte of one has arrived."""

    def __init__(
        self, courier: Courier, lane: int, ranks: Sequence[int], tensor: Tensor, call: Signature
    ) -> None:
        self._courier, self._lane, self._ranks = courier, lane, ranks
        self._tensor, self._call = tensor, call
        self.source = ANYONE

    def wait(self) -> None:
        """Wait for a message; raise when a member fails meanwhile, or when all have left."""
        while not self.done():
            self._courier.sleep(POLL_S)

    def done(self) -> bool:
        """Whether a message has come; asking receives it."""
        if self.source == ANYONE:
            found = self._courier.take_any(self._lane, self._ranks)
            if found is not None:
                sender, parcel = found
                self._courier.put(parcel, sender, self._tensor, self._call)
                self.source = self._ranks.index(sender)
        return self.source != ANYONE


@final
class Lane:
    """One lane among some of the courier's members: the messenger that algorithms get."""

    def __init__(self, courier: Courier, number: int, ranks: Sequence[int]) -> None:
        self._courier, self._number = courier, number
        self._ranks = list(ranks)
        self._rank = self._ranks.index(courier.group.rank)

    @property
    def rank(self) -> int:
        """This member's number among those of the lane."""
        return self._rank

    @property
    def size(self) -> int:
        """How many members the lane has."""
        return len(self._ranks)

    def send(self, tensor: Tensor, to: int) -> Sending:
        """Send to one member: the tensor is copied at once, and the wait is for the wire."""
        check_peer("send", self._rank, self.size, to)
        return Sending(self._courier, self._courier.send(self._number, tensor, self._ranks[to]))

    def recv(self, tensor: Tensor, sender: int) -> Receiving:
        """Receive from one member what it sent."""
        check_peer("recv", self._rank, self.size, sender)
        call = checked_signature("message", self.size, tensor.dtype, tensor.numel())
        slot = self._courier.ask(self._number, self._ranks[sender])
        return Receiving(self._courier, slot, tensor, call, sender)

    def recv_from_anyone(self, tensor: Tensor) -> ReceivingFromAnyone:
        """Receive one message from any member."""
        call = checked_signature("message", self.size, tensor.dtype, tensor.numel())
        return ReceivingFromAnyone(self._courier, self._number, self._ranks, tensor, call)
