"""The ledger of a server whose workers update the weights themselves: numbers in memory that all of them map.

::

    words   counters | last sequence of each worker | clock of each worker | entries: a ring, one for each update

A worker that holds the mutex of the weights changes them, and writes what it did: an *entry* (rank, sequence, version,
step), the new version, its own sequence number and clock. The server reads entries and records them as events of the
run. So an update costs a few stores and no message.

The rules of `ledger.py`, without messages::

    once       no message is lost or repeated: a worker writes its own update, in the order of its program. Weights and
               words are saved together, while no worker holds the mutex, and a run that was killed goes on from there.
    release    c − min(clocks) ≤ bound, as in the ledger; a worker reads the clocks of the others itself.
    turns      the next turn is a counter. The first worker that finds none left closes the segment, and decides with
               which signal: all others get the same answer.

If a worker is killed in the middle of an update, the weights in memory are half updated; the run stops
(`on_lost stop`), and is resumed from its last checkpoint. `on_lost continue` therefore uses messages.
"""

from collections.abc import Sequence
from typing import NamedTuple, final

from shoal.strategies.strategy import EndOfTurns, Turn

CAPACITY = 8192
"""Entries that the server may be behind: some seconds of the fastest workers."""


class Entry(NamedTuple):
    """One update, or one push that was left out."""

    version: int
    rank: int
    sequence: int
    step: int
    from_version: int
    """Updates in the weights of which this was the gradient."""
    staleness: int
    share: int
    """The share of the turn; −1: none."""
    is_skipped: int
    """1: the gradient was not finite, and is left out."""


(
    _VERSION,
    _RECORDED,
    _NEXT_TURN,
    _STOP_SIGNAL,
    _STOP_AT,
    _CLOSED_FIRST,
    _CLOSED_END,
    _CLOSED_AT,
    _CLOSED_SIGNAL,
    _STALENESS_SUM,
    _STALENESS_MAX,
    _PUSHES,
    _SKIPPED,
    _PAUSES_OVER,
    _HEADER,
) = range(15)


@final
class Journal:
    """The state of one server among `workers` workers, in words that are zero at first.

    Methods that change it, and `entries`, are for the one that holds the mutex.

    >>> journal = Journal([0] * Journal.num_words(2), workers=2, bound=None)
    >>> journal.next_turn(first=0, end=1), journal.next_turn(0, 1), journal.next_turn(0, 1)
    (Turn(step=0, share=0), Turn(step=0, share=1), EndOfTurns(step=1, stop_signal=0))
    >>> journal.write(rank=1, sequence=1, from_version=0, step=0, share=1, is_skipped=False)
    >>> journal.entries()
    [Entry(version=1, rank=1, sequence=1, step=0, from_version=0, staleness=0, share=1, is_skipped=0)]
    """

    def __init__(self, words: "list[int] | memoryview[int]", workers: int, bound: int | None) -> None:
        """`bound` limits how far the clocks are apart; None: no limit."""
        self._words, self._workers, self._bound = words, workers, bound
        self._last = _HEADER
        self._clocks = range(_HEADER + workers, _HEADER + 2 * workers)
        self._entries = _HEADER + 2 * workers

    @staticmethod
    def num_words(workers: int) -> int:
        """The words that it needs."""
        return _HEADER + 2 * workers + CAPACITY * len(Entry._fields)

    @property
    def version(self) -> int:
        """Updates made."""
        return self._words[_VERSION]

    @property
    def skipped(self) -> int:
        """Updates that the guard left out. They have a version, too."""
        return self._words[_SKIPPED]

    @property
    def staleness(self) -> tuple[int, int, int]:
        """Of all updates so far: the sum, the largest, and their number."""
        words = self._words
        return words[_STALENESS_SUM], words[_STALENESS_MAX], words[_PUSHES]

    # Updates.

    def has_room(self) -> bool:
        """Whether every worker can write one more entry; if not, workers wait until the server has read some."""
        return self._words[_VERSION] - self._words[_RECORDED] <= CAPACITY - self._workers

    def write(
        self, rank: int, sequence: int, from_version: int, step: int, share: int, is_skipped: bool
    ) -> None:
        """Record an update of the weights."""
        words = self._words
        version = words[_VERSION] + 1
        staleness = version - 1 - from_version
        at = self._entries + (version - 1) % CAPACITY * len(Entry._fields)
        for value in (version, rank, sequence, step, from_version, staleness, share, int(is_skipped)):
            words[at] = value
            at += 1
        words[_STALENESS_SUM] += staleness
        words[_STALENESS_MAX] = max(words[_STALENESS_MAX], staleness)
        words[_PUSHES] += 1
        words[_SKIPPED] += is_skipped
        words[_VERSION] = version
        self.finish(rank, sequence, step + 1)

    def finish(self, rank: int, sequence: int, steps: int) -> None:
        """Note a worker's last request, and how many steps it has finished."""
        self._words[self._last + rank] = sequence
        clock = self._clocks[rank]
        self._words[clock] = max(self._words[clock], steps)

    def end_pause(self) -> None:
        """The server has saved: the workers may go on."""
        self._words[_PAUSES_OVER] += 1

    def is_over(self, pauses: int) -> bool:
        """Whether this many pauses are over. Before, a worker must not change what the server saves."""
        return self._words[_PAUSES_OVER] >= pauses

    def entries(self) -> list[Entry]:
        """Those that the server has not recorded yet; it has from now on."""
        words, width = self._words, len(Entry._fields)
        found: list[Entry] = []
        for index in range(words[_RECORDED], words[_VERSION]):
            at = self._entries + index % CAPACITY * width
            found.append(Entry(*words[at : at + width]))
        words[_RECORDED] += len(found)
        return found

    # Who may go on.

    def may_go_on(self, rank: int) -> bool:
        """Whether no worker is more than `bound` steps behind this one. Clocks only grow, so no mutex is needed."""
        if self._bound is None:
            return True
        clocks = [self._words[clock] for clock in self._clocks]
        return clocks[rank] - min(clocks) <= self._bound

    def next_turn(self, first: int, end: int) -> Turn | EndOfTurns:
        """The next turn of steps `first` to `end` − 1; if none is left, why: the same for all workers."""
        words = self._words
        if (words[_CLOSED_FIRST], words[_CLOSED_END]) != (first, end):
            turn = max(words[_NEXT_TURN], first * self._workers)
            # A resumed run may stop before any turn is given, but not before the step at which it begins.
            last = min(end, max(first, words[_STOP_AT])) if words[_STOP_SIGNAL] else end
            if turn < last * self._workers:
                words[_NEXT_TURN] = turn + 1
                return Turn(*divmod(turn, self._workers))
            words[_CLOSED_FIRST], words[_CLOSED_END] = first, end
            words[_CLOSED_AT], words[_CLOSED_SIGNAL] = last, words[_STOP_SIGNAL]
            for clock in self._clocks:
                words[clock] = max(words[clock], last)
        return EndOfTurns(words[_CLOSED_AT], words[_CLOSED_SIGNAL])

    def note_stop(self, stop_signal: int) -> None:
        """On the first stop signal, choose the step after which all workers stop: none has begun a later one."""
        words = self._words
        if stop_signal and not words[_STOP_SIGNAL]:
            furthest = max(words[clock] for clock in self._clocks) + 1
            turns = -(-words[_NEXT_TURN] // self._workers)
            words[_STOP_AT] = turns if words[_NEXT_TURN] else furthest
            words[_STOP_SIGNAL] = stop_signal

    def stop_signal_after(self, steps: int) -> int:
        """The signal for which a worker stops that takes no turns and has finished this many steps; 0: it goes on."""
        words = self._words
        return words[_STOP_SIGNAL] if words[_STOP_SIGNAL] and steps >= words[_STOP_AT] else 0

    # Saving, in the form of a `Ledger`.

    def resume(self, rank: int) -> tuple[int, int]:
        """The sequence number and the step after which a worker goes on."""
        return self._words[self._last + rank], self._words[self._clocks[rank]]

    def state(self) -> list[int]:
        """Everything that must be saved together with the weights."""
        last, clocks = zip(*(self.resume(rank) for rank in range(self._workers)), strict=True)
        return [self.version, 0, *last, *clocks, self.skipped]

    def restore(self, state: Sequence[int]) -> None:
        """Return to a saved state, in which no turn is under way."""
        words, saved, end = self._words, list(state), 2 + 2 * self._workers
        for index in range(_HEADER):
            words[index] = 0
        words[_VERSION] = words[_RECORDED] = saved[0]
        words[_SKIPPED] = sum(saved[end:])  # older checkpoints end before it
        for index, value in enumerate(saved[2:end]):
            words[self._last + index] = value
