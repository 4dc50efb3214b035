"""Who computes which share of which step, where a server hands out turns. Pure state machines.

A step of W workers has W shares; a *turn* is one share of one step. Workers meet at an *end* (of an epoch, at a
checkpoint): from there on no turn is given until they ask for turns up to a later end. They meet when every turn before
it is finished, so every sample of an epoch is used once, whichever worker took it, and also if one is lost: the turn
that it had under way is given to another.

`Turns` (asp): the next turn in order goes to any worker that is free, so a fast one takes more of them.
`BoundedTurns` (ssp): each worker has its own share of every step, and those of lost workers are free for all.
"""

from abc import ABC, abstractmethod
from typing import final

from shoal.strategies.strategy import Turn


class TurnRules(ABC):
    """What both kinds have in common: a worker has one turn at a time, and a repeated request gets the same one."""

    def __init__(self, shares: int) -> None:
        self._shares = shares
        self._stop_at: int | None = None
        self._given: dict[int, tuple[int, Turn]] = {}
        """The last turn of each worker, and the request that it answered."""
        self._under_way: dict[int, Turn] = {}
        self.lost: set[int] = set()

    def take(self, rank: int, sequence: int, first: int, end: int) -> Turn | None:
        """A turn of steps `first` to `end` − 1 for a worker; None: there is none now (see `is_over`)."""
        given = self._given.get(rank)
        if given is not None and given[0] == sequence:
            return given[1]
        turn = self._choose(rank, first, self.end_of(first, end))
        if turn is not None:
            self._given[rank] = sequence, turn
            self._under_way[rank] = turn
        return turn

    def finish(self, rank: int) -> Turn | None:
        """A worker has pushed the gradients of its turn, which is returned."""
        turn = self._under_way.pop(rank, None)
        if turn is not None:
            self._finished(turn)
        return turn

    def lose(self, rank: int) -> Turn | None:
        """A worker is lost: the turn that it had under way, which another will get."""
        self.lost.add(rank)
        turn = self._under_way.pop(rank, None)
        if turn is not None:
            self._returned(turn)
        return turn

    def stop(self) -> None:
        """Give no turn of a step of which none has been given: all workers stop after the same step."""
        if self._stop_at is None:
            self._stop_at = self._furthest()

    def end_of(self, first: int, end: int) -> int:
        """The step before which workers really end: earlier than `end` after `stop`, but never before `first`.

        A resumed run may stop before any turn is given: then nothing here knows yet which steps are finished.
        """
        return end if self._stop_at is None else min(end, max(first, self._stop_at))

    def is_over(self, first: int, end: int) -> bool:
        """Whether every turn of these steps is finished."""
        return not self._under_way and self._none_left(first, self.end_of(first, end))

    @abstractmethod
    def _choose(self, rank: int, first: int, end: int) -> Turn | None: ...

    @abstractmethod
    def _furthest(self) -> int:
        """The step after the last one of which a turn was given."""

    @abstractmethod
    def _none_left(self, first: int, end: int) -> bool:
        """Whether every turn before `end` has been given, and none came back."""

    @abstractmethod
    def _finished(self, turn: Turn) -> None:
        """A turn counts."""

    @abstractmethod
    def _returned(self, turn: Turn) -> None:
        """A turn can be given again."""


@final
class Turns(TurnRules):
    """Share j of step t is turn t·W + j; they are given in this order.

    >>> turns = Turns(shares=2)
    >>> [turns.take(rank, sequence, first=0, end=1) for rank, sequence in ((0, 1), (1, 1), (1, 1))]
    [Turn(step=0, share=0), Turn(step=0, share=1), Turn(step=0, share=1)]
    >>> turns.finish(0), turns.take(0, 2, 0, 1), turns.is_over(0, 1)
    (Turn(step=0, share=0), None, False)
    >>> turns.lose(1), turns.take(0, 2, 0, 1)
    (Turn(step=0, share=1), Turn(step=0, share=1))
    >>> turns.finish(0), turns.is_over(0, 1)
    (Turn(step=0, share=1), True)
    """

    def __init__(self, shares: int) -> None:
        super().__init__(shares)
        self._next = 0
        self._back: list[Turn] = []
        """Turns of lost workers."""

    def _choose(self, rank: int, first: int, end: int) -> Turn | None:
        if self._back:
            return self._back.pop(0)
        self._next = max(self._next, first * self._shares)
        if self._next >= end * self._shares:
            return None
        self._next += 1
        return Turn(*divmod(self._next - 1, self._shares))

    def _furthest(self) -> int:
        return -(-self._next // self._shares)

    def _none_left(self, first: int, end: int) -> bool:
        return not self._back and max(self._next, first * self._shares) >= end * self._shares

    def _finished(self, turn: Turn) -> None:
        del turn

    def _returned(self, turn: Turn) -> None:
        self._back = sorted([*self._back, turn])


@final
class BoundedTurns(TurnRules):
    """Worker r has share r of every step; the share of a lost worker goes to the first that is free and not behind it.

    Each share has a clock, the steps that are finished. Of its own share and those of lost workers that are not under
    way, a worker takes the one with the earliest clock, if that is at most `bound` ahead of the earliest of all: so the
    weights with which a turn of step c begins contain all updates of steps before c − bound.

    >>> turns = BoundedTurns(shares=2, bound=1)
    >>> for sequence in (1, 2, 3):
    ...     print(turns.take(0, sequence, 0, 9), turns.finish(0) is not None)
    Turn(step=0, share=0) True
    Turn(step=1, share=0) True
    None False
    >>> turns.lose(1), turns.take(0, 3, 0, 9)
    (None, Turn(step=0, share=1))
    """

    def __init__(self, shares: int, bound: int) -> None:
        super().__init__(shares)
        self._bound = bound
        self._clocks = [0] * shares

    def _choose(self, rank: int, first: int, end: int) -> Turn | None:
        self._clocks = [max(clock, first) for clock in self._clocks]
        busy = {turn.share for turn in self._under_way.values()}
        free = [share for share in (rank, *sorted(self.lost)) if share not in busy]
        if not free:
            return None
        share = min(free, key=lambda share: self._clocks[share])  # of equals, its own
        step = self._clocks[share]
        return Turn(step, share) if step < end and step - min(self._clocks) <= self._bound else None

    def _furthest(self) -> int:
        begun = [turn.step + 1 for turn in self._under_way.values()]
        return max([*self._clocks, *begun])

    def _none_left(self, first: int, end: int) -> bool:
        return all(max(clock, first) >= end for clock in self._clocks)

    def _finished(self, turn: Turn) -> None:
        self._clocks[turn.share] = turn.step + 1

    def _returned(self, turn: Turn) -> None:
        del turn  # its share has still the clock from before
