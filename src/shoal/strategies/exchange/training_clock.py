"""The current step, for everything that depends on it: stages of an exchange, faults that begin at a step."""

from dataclasses import dataclass, field

from shoal.events.spans import SpanRecorder, silent


@dataclass
class TrainingClock:
    """The step in progress. The loop sets it."""

    step: int = 0
    total_steps: int = 1
    span: SpanRecorder = field(default_factory=silent)
    """Measures what an exchange does inside a step, such as encoding."""

    @property
    def fraction(self) -> float:
        """The fraction of the training that is done: 0 at the beginning, below 1 in the last step."""
        return self.step / self.total_steps
