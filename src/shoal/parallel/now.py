"""Where training stands, for what depends on it: stages of an exchange, faults that begin at a step."""

from dataclasses import dataclass


@dataclass
class Now:
    """The step in progress; the loop sets it, whoever was handed it reads it."""

    step: int = 0
    total_steps: int = 1

    @property
    def fraction(self) -> float:
        """The part of the training that lies behind: 0 at the beginning, below 1 in the last step."""
        return self.step / self.total_steps
