"""The ledger of a server: which push is applied when, exactly once, and which worker may go on. A pure state machine.

Every push carries (rank, sequence, version, step): a worker numbers its requests from 1 and has one under way at a
time; `version` counts the updates that its weights contain; `step` is the worker's clock. The ledger decides about
four things::

    once       a sequence number that is not larger than the last one received from that rank is a repetition: the
               reply was lost, or the network delivered twice. It is acknowledged again and never applied again.
    update     at once (asp, ssp): each push is an update. Gathered (bsp): the pushes of a step are one update, made
               when the number `needed` of them is there; a push that comes later is dropped and recorded (backup
               workers).
    release    a worker that has finished c steps gets its reply, with which it begins the next one, when no other is
               more than `bound` steps behind: c − min(clocks) ≤ bound. Gathered: when its step's update is made.
    lost       a worker that is declared lost is forgotten: what it has pushed before counts, and nothing that arrives
               afterwards does.

So with bound s a worker that begins step c reads weights with all updates of all workers' steps before c − s (stale
synchronous parallel: Ho et al. 2013). The weights and the ledger are one state: a server that restores both from one
moment, and forgets everything after it, still applies each push once, because workers repeat what was not acknowledged.
"""

from collections.abc import Sequence
from typing import NamedTuple, final

from shoal.errors import GroupError


class Push(NamedTuple):
    """What a worker says about the gradient that it pushes."""

    rank: int
    sequence: int
    version: int
    """Updates in the weights of which this is the gradient."""
    step: int
    """The steps that the worker had finished before."""


class VersionedUpdate(NamedTuple):
    """An update to make now."""

    version: int
    """Its number: how many updates the weights contain afterwards."""
    pushes: tuple[Push, ...]
    """In rank order, so that their sum does not depend on who was faster."""

    def staleness(self, push: Push) -> int:
        """The updates that the weights contain and the gradient does not know of."""
        return self.version - 1 - push.version


@final
class Ledger:
    """The state of one server among `workers` workers.

    >>> ledger = Ledger(workers=2, bound=1)
    >>> ledger.receive(Push(rank=0, sequence=1, version=0, step=0)).version
    1
    >>> ledger.receive(Push(rank=0, sequence=1, version=0, step=0)) is None, ledger.release()
    (True, [0])
    >>> ledger.receive(Push(rank=0, sequence=2, version=1, step=1)).version, ledger.release()
    (2, [])
    >>> ledger.receive(Push(rank=1, sequence=1, version=0, step=0)).staleness(Push(1, 1, 0, 0)), ledger.release()
    (2, [0, 1])
    """

    def __init__(self, workers: int, bound: int | None, needed: int = 0) -> None:
        """`needed` pushes are gathered for an update; 0: each is an update, and `bound` limits the clocks."""
        self._bound, self._needed = bound, needed
        self.version = 0
        """Updates made."""
        self.dropped = 0
        """Pushes that came after the update of their step."""
        self.skipped = 0
        """Updates that the guard left out. They have a version, too."""
        self._last = [0] * workers
        """The last sequence number received from each worker."""
        self._clocks = [0] * workers
        """Steps that each worker has finished."""
        self._held: dict[int, Push] = {}
        self._owed: set[int] = set()
        """Workers that wait for a reply."""
        self.lost: set[int] = set()

    def is_new(self, rank: int, sequence: int) -> bool:
        """Whether this is the next request of a worker; if not, it is a repetition."""
        if sequence > self._last[rank] + 1:
            raise GroupError(
                f"request {sequence} of rank {rank} came after its request {self._last[rank]}: one is missing"
            )
        return sequence > self._last[rank]

    def receive(self, push: Push) -> VersionedUpdate | None:
        """Record a push; the update to make now, if there is one. `release` then says who gets a reply."""
        rank = push.rank
        if not self._acknowledge(rank, push.sequence):
            return None
        self._clocks[rank] = max(self._clocks[rank], push.step + 1)
        if not self._needed:
            return self._made((push,))
        if push.step < self.version:
            self.dropped += 1
            return None
        self._held[rank] = push
        if len(self._held) < self._needed:
            return None
        held, self._held = self._held, {}
        return self._made(tuple(held[rank] for rank in sorted(held)))

    def pull(self, rank: int, sequence: int, step: int) -> None:
        """Record a request without a gradient: a worker that has finished `step` steps asks for weights."""
        if self._acknowledge(rank, sequence):
            self._clocks[rank] = max(step, self._clocks[rank])

    def _acknowledge(self, rank: int, sequence: int) -> bool:
        """Owe a reply to the last request, also when it is repeated; whether the request is new.

        An older one is a message that the network kept: its reply has arrived, or the worker would not have gone on.
        """
        is_new = self.is_new(rank, sequence)
        if sequence >= self._last[rank]:
            self._owed.add(rank)
        self._last[rank] = sequence if is_new else self._last[rank]
        return is_new

    def lose(self, rank: int) -> None:
        """Forget a worker: ignore what still arrives from it, and do not wait for it."""
        self.lost.add(rank)
        self._owed.discard(rank)

    def meet(self, step: int) -> None:
        """All shares of the steps before this one are finished: no worker is behind it, and no lost one."""
        self._clocks = [max(clock, step) for clock in self._clocks]

    def _made(self, pushes: tuple[Push, ...]) -> VersionedUpdate:
        self.version += 1
        return VersionedUpdate(self.version, pushes)

    def release(self) -> list[int]:
        """The workers that get a reply now, in rank order. Each is returned once for each request."""
        slowest = min(self._clocks)
        free = [rank for rank in sorted(self._owed) if self._may_go_on(rank, slowest)]
        self._owed.difference_update(free)
        return free

    def _may_go_on(self, rank: int, slowest: int) -> bool:
        if self._needed:
            return rank not in self._held
        return self._bound is None or self._clocks[rank] - slowest <= self._bound

    def resume(self, rank: int) -> tuple[int, int]:
        """The sequence number and the step after which a worker goes on that was restarted.

        A push that is only held does not count: it is lost if the server restarts before its update, so it is repeated.
        """
        is_held = rank in self._held
        return self._last[rank] - is_held, self._clocks[rank] - is_held

    @property
    def furthest(self) -> int:
        """The latest step that any worker may have begun."""
        return max(clock - (rank in self._owed and clock > 0) for rank, clock in enumerate(self._clocks))

    def state(self) -> list[int]:
        """Everything that must be saved together with the weights; pushes that are held are pushed again."""
        last, clocks = zip(*(self.resume(rank) for rank in range(len(self._last))), strict=True)
        return [self.version, self.dropped, *last, *clocks, self.skipped]

    def restore(self, state: Sequence[int]) -> None:
        """Return to a saved state."""
        workers = len(self._last)
        self.version, self.dropped = state[:2]
        self._last, self._clocks = list(state[2 : 2 + workers]), list(state[2 + workers : 2 + 2 * workers])
        if self._needed:
            # All had met when this was saved. One that had skipped its last steps must not be behind for ever.
            self._clocks = [self.version] * workers
        self.skipped = sum(state[2 + 2 * workers :])  # older checkpoints end before it
        self._held, self._owed, self.lost = {}, set(), set()
