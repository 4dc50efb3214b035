"""Who computes which share of which step, where a server hands out turns. A pure state machine."""

from array import array
from typing import TypeAlias, final

from shoal.strategies.strategy import EndOfTurns, Turn

Words: TypeAlias = "memoryview[int]"
"""An array of 64-bit integers, zero at first."""


def new_words(number: int) -> Words:
    """Words of this process alone."""
    return memoryview(array("q", bytes(8 * number)))


@final
class Turns:
    """The turns of a step of `workers` workers; a *turn* is one share of one step: share j of step t is t·W + j.

    Workers meet at an *end* (of an epoch, at a checkpoint): from there on no turn is given until they ask for turns up
    to a later end. Every sample of an epoch is used once, whichever worker took it, also if one is lost: the turn that
    it had under way is given to another.

    Without a bound (asp), the next turn in order goes to any worker that is free, so a fast one takes more of them.

    With a bound (ssp), worker r has share r of every step. Each share has a clock, the steps that are finished. Of its
    own share and the shares of lost workers that are not under way, a worker takes the one with the earliest clock, if
    that is at most `bound` ahead of the earliest of all: so the weights with which a turn of step c begins contain all
    updates of steps before c − bound.

    >>> turns = Turns(workers=2, bound=None)
    >>> [turns.take(rank, sequence, first=0, end=1) for rank, sequence in ((0, 1), (1, 1), (1, 1))]
    [Turn(step=0, share=0), Turn(step=0, share=1), Turn(step=0, share=1)]
    >>> turns.finish(0), turns.take(0, 2, 0, 1), turns.is_over(0, 1)
    (Turn(step=0, share=0), None, False)
    >>> turns.lose(1), turns.take(0, 2, 0, 1)
    (Turn(step=0, share=1), Turn(step=0, share=1))
    >>> turns.finish(0), turns.is_over(0, 1)
    (Turn(step=0, share=1), True)
    """

    _COUNTERS, _COLUMNS = 7, 5
    _NEXT, _STOPS, _STOP_AT, _END_FIRST, _END_LAST, _END_AT, _END_SIGNAL = range(_COUNTERS)

    def __init__(self, workers: int, bound: int | None, words: "Words | None" = None) -> None:
        self._workers, self._bound = workers, bound
        self._words = words = new_words(self.num_words(workers)) if words is None else words
        columns = (words[at : at + workers] for at in range(self._COUNTERS, len(words), workers))
        self._asked, self._given, self._under_way, self._lost, self._clocks = columns
        """For each worker its last request that got a turn, this turn, the turn under way (a number + 1; 0: none) and
        whether it is lost; for each share the steps that are finished."""

    @classmethod
    def num_words(cls, workers: int) -> int:
        """The words that it needs."""
        return cls._COUNTERS + cls._COLUMNS * workers

    @property
    def living(self) -> set[int]:
        """The workers that are not lost."""
        return {rank for rank, is_lost in enumerate(self._lost) if not is_lost}

    def take(self, rank: int, sequence: int, first: int, end: int) -> Turn | None:
        """A turn of steps `first` to `end` − 1 for a worker; None: there is none now (see `is_over`).

        A repeated request gets the same turn again.
        """
        if self._asked[rank] == sequence:
            return self._turn(self._given[rank])
        choose = self._next_in_order if self._bound is None else self._next_of_shares
        chosen = choose(rank, first, self.end_of(first, end))
        if chosen:
            self._asked[rank], self._given[rank], self._under_way[rank] = sequence, chosen, chosen
        return self._turn(chosen)

    def _turn(self, written: int) -> Turn | None:
        return Turn(*divmod(written - 1, self._workers)) if written else None

    def _next_in_order(self, rank: int, first: int, end: int) -> int:
        del rank
        returned = [(turn, lost) for lost, turn in enumerate(self._under_way) if turn and self._lost[lost]]
        if returned:
            turn, lost = min(returned)
            self._under_way[lost] = 0
            return turn
        turn = max(self._words[self._NEXT], first * self._workers)
        if turn >= end * self._workers:
            return 0
        self._words[self._NEXT] = turn + 1
        return turn + 1

    def _next_of_shares(self, rank: int, first: int, end: int) -> int:
        assert self._bound is not None
        clocks = [max(clock, first) for clock in self._clocks]
        busy = {turn.share for turn in self._turns_of_the_living()}
        lost = [other for other, is_lost in enumerate(self._lost) if is_lost]
        free = [share for share in (rank, *lost) if share not in busy]
        if not free:
            return 0
        share = min(free, key=lambda share: clocks[share])  # of equals, its own
        step = clocks[share]
        may_begin = step < end and step - min(clocks) <= self._bound
        return step * self._workers + share + 1 if may_begin else 0

    def _turns_of_the_living(self) -> list[Turn]:
        found = (self._turn(self._under_way[rank]) for rank in self.living)
        return [turn for turn in found if turn is not None]

    def finish(self, rank: int) -> Turn | None:
        """A worker has pushed the gradients of its turn, which is returned."""
        turn = self._turn(self._under_way[rank])
        self._under_way[rank] = 0
        if turn is not None:
            self._clocks[turn.share] = turn.step + 1
        return turn

    def lose(self, rank: int) -> Turn | None:
        """A worker is lost: the turn that it had under way, which another will get."""
        self._lost[rank] = 1
        return self._turn(self._under_way[rank])

    def stop(self) -> None:
        """Give no turn of a step of which none has been given: all workers stop after the same step."""
        begun = -(-self._words[self._NEXT] // self._workers)
        if self._bound is not None:
            begun = max([*self._clocks, *(turn.step + 1 for turn in self._turns_of_the_living())])
        self._words[self._STOPS], self._words[self._STOP_AT] = 1, begun

    def end_of(self, first: int, end: int) -> int:
        """The step before which workers really end: earlier than `end` after `stop`, but never before `first`.

        A resumed run may stop before any turn is given: then nothing here knows yet which steps are finished.
        """
        return min(end, max(first, self._words[self._STOP_AT])) if self._words[self._STOPS] else end

    def is_over(self, first: int, end: int) -> bool:
        """Whether every turn of these steps is finished."""
        end = self.end_of(first, end)
        if self._bound is not None:
            return all(max(clock, first) >= end for clock in self._clocks)
        all_given = max(self._words[self._NEXT], first * self._workers) >= end * self._workers
        return all_given and not any(self._under_way)

    def has_ended(self, first: int, end: int) -> bool:
        """Whether workers have been told that no turn of these steps is left."""
        return (self._words[self._END_FIRST], self._words[self._END_LAST]) == (first, end)

    def end_for_all(self, first: int, end: int, stop_signal: int) -> EndOfTurns:
        """Why no turn of these steps is left: the first answer is every worker's, though a signal may come between."""
        words = self._words
        if not self.has_ended(first, end):
            words[self._END_FIRST], words[self._END_LAST] = first, end
            words[self._END_AT], words[self._END_SIGNAL] = self.end_of(first, end), stop_signal
        return EndOfTurns(words[self._END_AT], words[self._END_SIGNAL])
