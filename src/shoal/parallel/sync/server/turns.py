"""Who computes which share of which step when workers do not wait for each other (asp). A pure state machine.

The shares of all steps are numbered in order: share j of step t is turn t·W + j, for W workers. A worker that is free
takes the next turn, so a fast one takes more of them, and every sample of an epoch is still used once. Workers meet at
an *end* (of an epoch, at a checkpoint): from there on no turn is given until they ask for turns up to a later end.
"""

from typing import final

from shoal.parallel.strategy import Turn


@final
class Turns:
    """The next turn, and the last one of each worker: a request that is repeated gets the same answer.

    >>> turns = Turns(shares=2)
    >>> [turns.take(rank, sequence, first=0, end=1) for rank, sequence in ((0, 1), (1, 1), (1, 1), (0, 2))]
    [Turn(step=0, share=0), Turn(step=0, share=1), Turn(step=0, share=1), None]
    """

    def __init__(self, shares: int) -> None:
        self._shares = shares
        self._next = 0
        self._stop_at: int | None = None
        self._given: dict[int, tuple[int, Turn | None]] = {}

    def take(self, rank: int, sequence: int, first: int, end: int) -> Turn | None:
        """The next turn of steps `first` to `end` − 1; None if all are taken."""
        given = self._given.get(rank)
        if given is not None and given[0] == sequence:
            return given[1]
        self._next = max(self._next, first * self._shares)
        turn = None
        if self._next < self.end_of(end) * self._shares:
            turn = Turn(*divmod(self._next, self._shares))
            self._next += 1
        self._given[rank] = sequence, turn
        return turn

    def stop(self) -> None:
        """Give no turn of a step of which none has been given: all workers stop after the same step."""
        if self._stop_at is None:
            self._stop_at = -(-self._next // self._shares)

    def end_of(self, end: int) -> int:
        """The step before which workers really end: earlier than `end` after `stop`."""
        return end if self._stop_at is None else min(end, self._stop_at)
