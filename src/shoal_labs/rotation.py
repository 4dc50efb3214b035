"""Ways that take turns in one run, a few steps each: all are measured in the same state of the machine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from shoal.kit.settings import StagesConfig

Step = TypeVar("Step")


@dataclass(frozen=True)
class Rotation:
    """Every way has a turn in each round.

    >>> Rotation(("a", "b"), turn=2, rounds=2).names
    ['a', 'a', 'b', 'b', 'a', 'a', 'b', 'b']
    """

    ways: tuple[str, ...]
    turn: int
    """Steps of a way in one round. The first is not counted: memory that has not been touched for a while is cold."""
    rounds: int

    @property
    def names(self) -> list[str]:
        """The way of every step."""
        turns = [way for _ in range(self.rounds) for way in self.ways]
        return [way for way in turns for _ in range(self.turn)]

    def stages(self, exchange_of: Callable[[str], str]) -> StagesConfig:
        """An exchange that changes with the way; `exchange_of` names the exchange of each."""
        names = self.names
        starts = [step for step, way in enumerate(names) if step == 0 or way != names[step - 1]]
        # Half a step early, so that a rounded fraction is still between two steps.
        plan = [f"{max(0, start - 0.5) / len(names):.9g}={exchange_of(names[start])}" for start in starts]
        return StagesConfig(plan=tuple(plan))

    def by_round(self, values: Sequence[float]) -> Mapping[str, list[float]]:
        """The median of every turn, without its first step.

        >>> Rotation(("a", "b"), turn=3, rounds=2).by_round([9, 1, 2, 9, 3, 4, 9, 5, 6, 9, 7, 8])
        {'a': [1.5, 5.5], 'b': [3.5, 7.5]}
        """
        counted, size = self.counted(values), self.turn - 1
        return {
            way: [median(its[start : start + size]) for start in range(0, len(its), size)]
            for way, its in counted.items()
        }

    def counted(self, steps: Sequence[Step]) -> Mapping[str, list[Step]]:
        """The steps of each way, without the first of every turn.

        >>> Rotation(("a", "b"), turn=2, rounds=2).counted(range(8))
        {'a': [1, 5], 'b': [3, 7]}
        """
        found = {way: list[Step]() for way in self.ways}
        for number, (step, way) in enumerate(zip(steps, self.names, strict=True)):
            if number % self.turn:
                found[way].append(step)
        return found
