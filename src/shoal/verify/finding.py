"""A difference between a distributed run and one machine, and what the workers of a run have in common."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Phase = Literal["start", "data", "forward", "backward", "exchange", "update"]


@dataclass(frozen=True)
class Finding:
    """The first difference that rounding does not explain."""

    step: int
    phase: Phase
    rank: int | None
    """The worker that differs; None if all do."""
    tensor: str
    size: float
    """The largest difference, as a part of the tensor's largest value."""
    tolerance: float
    """As much as rounding explains."""
    cause: str
    evidence: Sequence[str] = field(default_factory=tuple)
    is_comparable: bool = True
    """Whether the run claims to equal one machine here: dropout and BatchNorm of shares cannot."""


@dataclass
class Outcome:
    """What a comparison found."""

    workers: int
    steps: int = 0
    """Compared in full."""
    finding: Finding | None = None
    notes: list[str] = field(default_factory=list[str])
    """What is true of the run and no difference."""
