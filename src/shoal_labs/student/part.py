"""One thing that a student wrote: trained with every seed, beside the same training done right."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shoal_labs.page.table import Cell
from shoal_labs.student.submission import Submission, TaskVerdict

LAST, FEW = 10, 20
"""Steps over which a loss is averaged, because one batch says little; a curve with few points stays as it is."""


@dataclass(frozen=True)
class StudentSize:
    """How much is trained."""

    seeds: int
    steps: int
    """Of a run; Lab 3 has epochs."""
    equal_steps: int
    """After which weights are compared: after many, rounding alone makes two correct runs differ."""
    samples: int
    rounds: int
    """In which things that are timed take turns."""


FULL = StudentSize(seeds=8, steps=200, equal_steps=10, samples=2000, rounds=31)
QUICK = StudentSize(seeds=5, steps=80, equal_steps=5, samples=1000, rounds=15)


@dataclass(frozen=True)
class StudentPlan:
    """The experiment with a student's code."""

    submission: Submission
    size: StudentSize
    first_seed: int = 0
    quick: bool = False
    lab: Any = None
    """The lab's own plan, where its whole experiment runs with the student's code."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """Every repetition's seed: initial weights and order of samples."""
        return tuple(range(self.first_seed, self.first_seed + self.size.seeds))


@dataclass(frozen=True)
class StudentRun:
    """One training."""

    losses: Sequence[float]
    """Of every step, over all nodes."""
    accuracy: float | None = None
    """On the test set at the end; None where the program does not test."""

    @property
    def finite(self) -> int:
        """How many losses there are before the first that is not a number."""
        return next(
            (step for step, loss in enumerate(self.losses) if not math.isfinite(loss)), len(self.losses)
        )

    @property
    def final_loss(self) -> float:
        """The mean over the last steps; of a short curve the last loss."""
        last = self.losses[-LAST if len(self.losses) > FEW else -1 :]
        return sum(last) / len(last)


@dataclass(frozen=True)
class StudentPart:
    """What was measured of one thing that the student wrote."""

    name: str
    label: str
    """Its name in the report's language."""
    runs: tuple[StudentRun, ...] = ()
    """With every seed; empty where nothing could be trained."""
    right: tuple[StudentRun, ...] = ()
    """The same training done right, with the same seeds."""
    x: Sequence[float] = ()
    """Where each loss stands on the axis of the figure."""
    numbers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else the findings rest on."""
    cells: Mapping[str, Cell] = field(default_factory=dict[str, Cell])
    """Further columns of the table of results."""

    def losses(self, of: Sequence[StudentRun]) -> list[float]:
        """The final loss, seed by seed."""
        return [each.final_loss for each in of]

    def accuracies(self, of: Sequence[StudentRun]) -> list[float]:
        """The test accuracy, seed by seed; empty where it was not tested."""
        return [each.accuracy for each in of if each.accuracy is not None]


def drawable(runs: Sequence[StudentRun]) -> int:
    """How many losses of the runs a curve can show: up to the first that is not a number in any of them."""
    return min((run.finite for run in runs), default=0)


@dataclass(frozen=True)
class StudentMeasured:
    """Everything measured."""

    plan: StudentPlan
    parts: Mapping[str, StudentPart]
    verdicts: Sequence[TaskVerdict]
    """What the check says."""
    lab: Any = None
    """What the lab itself measures, where its whole experiment ran with the student's code."""

    @property
    def drawn(self) -> list[StudentPart]:
        """The parts with a curve."""
        return [part for part in self.parts.values() if drawable(part.runs)]
