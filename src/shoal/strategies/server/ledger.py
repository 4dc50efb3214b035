"""The ledger of a server: which push is applied when, exactly once, and which worker may go on. A pure state machine.

Its state is an array of integers. A server that gets messages has the array to itself. Workers that update the weights
in mapped memory have the array there too, and use it while they hold the mutex. The rules are the same.

Every push carries (rank, sequence, version, step): a worker numbers its requests from 1 and has one under way at a
time; `version` counts the updates that its weights contain; `step` is the worker's clock. The ledger decides::

    once       a sequence number that is not larger than the last one received from that rank is a repetition: the
               reply was lost, or the network delivered twice. It is acknowledged again and never applied again.
    update     at once (asp, ssp): each push is an update. Gathered (bsp): the pushes of a step are one update, made
               when the number `needed` of them is there; a push that comes later is dropped and recorded (backup
               workers).
    release    a worker that has finished c steps gets its reply, with which it begins the next one, when no other is
               more than `bound` steps behind: c − min(clocks) ≤ bound. Gathered: when its step's update is made.
    stop       after the first stop signal, all workers stop after the same step, which none has passed.
    lost       a worker that is declared lost is forgotten: its earlier pushes count, and later messages are ignored.

So with bound s a worker that begins step c reads weights with all updates of all workers' steps before c − s (stale
synchronous parallel: Ho et al. 2013). The weights and the ledger are one state: a server that restores both from one
moment, and forgets everything after it, still applies each push once, because workers repeat pushes that were not
acknowledged.

Where workers update the weights themselves, they write each update to a `Journal`, from which the server records it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, final

from shoal.errors import GroupError
from shoal.strategies.server.turns import Turns, Words, new_words
from shoal.strategies.strategy import EndOfTurns, Turn

CAPACITY = 8192
"""Updates that the server may be behind: some seconds of the fastest workers."""


class Push(NamedTuple):
    """A worker's description of the gradient that it pushes."""

    rank: int
    sequence: int
    version: int
    """Updates in the weights that the gradient was computed with."""
    step: int
    """The steps that the worker had finished before."""


class VersionedUpdate(NamedTuple):
    """An update to make now."""

    version: int
    """Its number: how many updates the weights contain afterwards."""
    pushes: tuple[Push, ...]
    """In rank order, so that their sum does not depend on who was faster."""
    share: int = -1
    """The share of the turn that the push finishes; −1: none."""

    def staleness(self, push: Push) -> int:
        """The updates that the weights contain and the gradient does not know of."""
        return self.version - 1 - push.version

    def events(self, is_skipped: bool) -> Iterator[dict[str, Any]]:
        """Records for the run's events, one for each push; `is_skipped`: the guard has left the update out."""
        more = {"share": self.share} if self.share >= 0 else {}
        more |= {"skipped": True} if is_skipped else {}
        for push in self.pushes:
            yield push_event("update", push, version=self.version, staleness=self.staleness(push)) | more


def push_event(event: str, push: Push, **values: int) -> dict[str, Any]:
    """The record of a push in the run's events."""
    return {
        "event": event,
        "rank": push.rank,
        "sequence": push.sequence,
        "step": push.step,
        "from_version": push.version,
        **values,
    }


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

    _COUNTERS, _COLUMNS = 8, 6
    _VERSION, _DROPPED, _SKIPPED, _STALENESS_SUM, _STALENESS_MAX, _PUSHES, _STOP_SIGNAL, _STOP_AT = range(
        _COUNTERS
    )

    def __init__(
        self,
        workers: int,
        bound: int | None,
        needed: int = 0,
        takes_turns: bool = False,
        words: "Words | None" = None,
    ) -> None:
        """`needed` pushes are gathered for an update; 0: each is an update, and `bound` limits the clocks.

        Where workers take turns, these bound how far apart workers are.
        """
        self._workers, self._needed = workers, needed
        self._bound = None if takes_turns else bound
        self._words = words = new_words(self.num_words(workers)) if words is None else words
        end = self._COUNTERS + self._COLUMNS * workers
        self.turns = Turns(workers, bound, words[end:])
        columns = (words[at : at + workers] for at in range(self._COUNTERS, end, workers))
        self._last, self._clocks, self._owed, *held = columns
        """For each worker its last sequence number, its finished steps, and whether it waits for a reply."""
        self._held, self._held_version, self._held_step = held
        """The pushes of workers that wait for the others, by their sequence numbers; 0: none."""

    @classmethod
    def num_words(cls, workers: int) -> int:
        """The words that it needs, its turns included."""
        return cls._COUNTERS + cls._COLUMNS * workers + Turns.num_words(workers)

    @property
    def version(self) -> int:
        """Updates made."""
        return self._words[self._VERSION]

    @property
    def skipped(self) -> int:
        """Updates that the guard left out. They count in `version`."""
        return self._words[self._SKIPPED]

    @property
    def dropped(self) -> int:
        """Pushes that came after the update of their step."""
        return self._words[self._DROPPED]

    def counts(self) -> dict[str, int]:
        """The counts of all updates so far, under the names that they have in a reply."""
        words = self._words
        return {
            "staleness_sum": words[self._STALENESS_SUM],
            "staleness_max": words[self._STALENESS_MAX],
            "pushes": words[self._PUSHES],
            "dropped": words[self._DROPPED],
            "skipped": words[self._SKIPPED],
        }

    # Which push counts.

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
        turn = self.turns.finish(rank)
        if not self._needed:
            return self._made((push,), -1 if turn is None else turn.share)
        if push.step < self.version:
            self._words[self._DROPPED] += 1
            return None
        _, self._held[rank], self._held_version[rank], self._held_step[rank] = push
        held = [rank for rank in range(self._workers) if self._held[rank]]
        if len(held) < self._needed:
            return None
        columns = self._held, self._held_version, self._held_step
        pushes = tuple(Push(rank, *(column[rank] for column in columns)) for rank in held)
        for rank in held:
            self._held[rank] = 0
        return self._made(pushes)

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
            self._owed[rank], self._last[rank] = 1, sequence
        return is_new

    def _made(self, pushes: tuple[Push, ...], share: int = -1) -> VersionedUpdate:
        words = self._words
        words[self._VERSION] += 1
        update = VersionedUpdate(words[self._VERSION], pushes, share)
        for staleness in map(update.staleness, pushes):
            words[self._STALENESS_SUM] += staleness
            words[self._STALENESS_MAX] = max(words[self._STALENESS_MAX], staleness)
        words[self._PUSHES] += len(pushes)
        return update

    def skip(self) -> None:
        """The guard has left out an update."""
        self._words[self._SKIPPED] += 1

    def lose(self, rank: int) -> Turn | None:
        """Forget a worker, and ignore its later messages; the turn that it had under way, which another will get."""
        self._owed[rank] = 0
        return self.turns.lose(rank)

    # Who may go on.

    def release(self) -> list[int]:
        """The workers that get a reply now, in rank order. Each is returned once for each request."""
        slowest = min(self._clocks)
        free = [rank for rank in range(self._workers) if self._owed[rank] and self._may_go_on(rank, slowest)]
        for rank in free:
            self._owed[rank] = 0
        return free

    def _may_go_on(self, rank: int, slowest: int) -> bool:
        if self._needed:
            return not self._held[rank]
        return self._bound is None or self._clocks[rank] - slowest <= self._bound

    def is_released(self, rank: int) -> bool:
        """Whether a worker waits for nothing. It reads one word, so it needs no mutex."""
        return not self._owed[rank]

    def end_of_turns(self, first: int, end: int) -> EndOfTurns:
        """Why no turn of these steps is left, the same for all workers. None is behind them then, and no lost one."""
        ended = self.turns.end_for_all(first, end, self._words[self._STOP_SIGNAL])
        for rank, clock in enumerate(self._clocks):
            self._clocks[rank] = max(clock, ended.step)
        return ended

    def note_stop(self, stop_signal: int) -> None:
        """On the first stop signal, choose the step after which all workers stop: none has begun a later one."""
        if stop_signal and not self._words[self._STOP_SIGNAL]:
            # A worker that waits for a reply has not begun its next step.
            begun = max(
                clock - (owed and clock > 0) for clock, owed in zip(self._clocks, self._owed, strict=True)
            )
            self._words[self._STOP_SIGNAL], self._words[self._STOP_AT] = stop_signal, begun + 1
            self.turns.stop()

    def stop_signal_after(self, steps: int) -> int:
        """The signal for which a worker stops that takes no turns and has finished this many steps; 0: it goes on."""
        stop_signal, stop_at = self._words[self._STOP_SIGNAL], self._words[self._STOP_AT]
        return stop_signal if steps >= stop_at else 0

    # Saving.

    def resume(self, rank: int) -> tuple[int, int]:
        """The sequence number and the step after which a worker goes on that was restarted.

        A push that is only held does not count: it is lost if the server restarts before its update, so it is repeated.
        """
        is_held = self._held[rank] > 0
        return self._last[rank] - is_held, self._clocks[rank] - is_held

    def state(self) -> list[int]:
        """Everything that must be saved together with the weights; pushes that are held are pushed again."""
        last, clocks = zip(*(self.resume(rank) for rank in range(self._workers)), strict=True)
        return [self.version, self.dropped, *last, *clocks, self.skipped]

    def restore(self, state: Sequence[int]) -> None:
        """Return to a saved state, in which no turn is under way."""
        words, workers, saved = self._words, self._workers, list(state)
        for index in range(len(words)):
            words[index] = 0
        words[self._VERSION], words[self._DROPPED] = saved[:2]
        words[self._SKIPPED] = sum(saved[2 + 2 * workers :])  # older checkpoints end before it
        clocks = saved[2 + workers : 2 + 2 * workers]
        if self._needed:
            # All had met when this was saved. One that had skipped its last steps must not be behind for ever.
            clocks = [self.version] * workers
        for rank in range(workers):
            self._last[rank], self._clocks[rank] = saved[2 + rank], clocks[rank]


@final
class Journal:
    """A ring of updates that workers have made and the server has not recorded yet, in words that are zero at first.

    Methods that change it are for the rank that holds the mutex.
    """

    _WIDTH = len(Push._fields) + 3
    _WRITTEN, _RECORDED, _PAUSES_OVER, _COUNTERS = range(4)

    def __init__(self, words: Words, workers: int) -> None:
        self._words, self._workers = words, workers

    @classmethod
    def num_words(cls) -> int:
        """The words that it needs."""
        return cls._COUNTERS + CAPACITY * cls._WIDTH

    def has_room(self) -> bool:
        """Whether every worker can write one more update; if not, workers wait until the server has read some."""
        return self._words[self._WRITTEN] - self._words[self._RECORDED] <= CAPACITY - self._workers

    def write(self, update: VersionedUpdate, is_skipped: bool) -> None:
        """Write an update of one push."""
        words, (push,) = self._words, update.pushes
        at = self._COUNTERS + words[self._WRITTEN] % CAPACITY * self._WIDTH
        for value in (*push, update.version, update.share, int(is_skipped)):
            words[at] = value
            at += 1
        words[self._WRITTEN] += 1

    def read(self) -> list[tuple[VersionedUpdate, bool]]:
        """The updates that the server has not recorded yet, and whether each was skipped; it records them now."""
        words, found = self._words, list[tuple[VersionedUpdate, bool]]()
        for index in range(words[self._RECORDED], words[self._WRITTEN]):
            at = self._COUNTERS + index % CAPACITY * self._WIDTH
            *push, version, share, is_skipped = words[at : at + self._WIDTH]
            found.append((VersionedUpdate(version, (Push(*push),), share), bool(is_skipped)))
        words[self._RECORDED] += len(found)
        return found

    def end_pause(self) -> None:
        """The server has saved: the workers may go on."""
        self._words[self._PAUSES_OVER] += 1

    def is_over(self, pauses: int) -> bool:
        """Whether this many pauses are over. Before, a worker must not change the memory that the server saves."""
        return self._words[self._PAUSES_OVER] >= pauses
