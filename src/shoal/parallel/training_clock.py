"""The current step, for everything that depends on it: stages of an exchange, faults that begin at a step."""

from dataclasses import dataclass


@dataclass
class TrainingClock:
    """The step in progress. The loop sets it."""

    step: int = 0
    total_steps: int = 1

    @property
    def fraction(self) -> float:
        """The fraction of the training that is done: 0 at the beginning, below 1 in the last step."""
        return self.step / self.total_steps
