"""How much is pruned at which step."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CubicSchedule:
    """The cubic curve of Zhu and Gupta (2017): fast at first, while there is much to remove, slow in the end.

    With u the fraction of the way from step `begin` to step `end`, the part 1 − (1 − u)³ of the final sparsity is
    reached. Masks change at `begin`, every `every` steps, and at `end`; then they are fixed.

    >>> schedule = CubicSchedule(begin=0, end=20, every=10)
    >>> [(step, schedule.part(step)) for step in range(100) if schedule.is_due(step)]
    [(0, 0.0), (10, 0.875), (20, 1.0)]
    >>> CubicSchedule.of(0.0, 0.0, every=10, total_steps=100).part(0)
    1.0
    """

    begin: int
    end: int
    every: int

    @classmethod
    def of(cls, begin: float, end: float, every: int, total_steps: int) -> "CubicSchedule":
        """From fractions of the training; masks are fixed before the last step."""
        return cls(int(begin * total_steps), min(int(end * total_steps), total_steps - 1), every)

    def is_due(self, step: int) -> bool:
        """Whether the masks change before this step."""
        return step == self.end or (self.begin <= step < self.end and (step - self.begin) % self.every == 0)

    def part(self, step: int) -> float:
        """The part of the final sparsity that holds from this step on."""
        if step >= self.end:
            return 1.0
        if step <= self.begin:
            return 0.0
        return 1.0 - (1.0 - (step - self.begin) / (self.end - self.begin)) ** 3
