"""How a pipeline schedule works: its ideal timeline, and the figures counted on it beside the published formulas."""

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.errors import ConfigError, unknown
from shoal.strategies.pipeline.schedule import Schedule
from shoal.strategies.pipeline.schedules import (
    FORMULAS,
    SCHEDULES,
    ScheduleFormula,
    bubble,
    build,
    with_weights_once,
)
from shoal.strategies.pipeline.timing import Timeline, timeline
from shoal.strategies.pipeline.validate import validate

MAX_STAGES, MAX_MICROBATCHES = 32, 64


@dataclass(frozen=True)
class ScheduleExplanation:
    """A schedule, when each of its actions runs if F = I = W = 1 and B = 2, and what is known about it."""

    schedule: Schedule
    summary: str
    timeline: Timeline
    formula: ScheduleFormula | None
    """None with weight gradients once per step: there is no published one."""

    @property
    def title(self) -> str:
        """The schedule and its size."""
        stages, microbatches = self.schedule.num_stages, self.schedule.num_microbatches
        once = " with weight gradients once per step" if self.formula is None else ""
        size = f"{_count(stages, 'stage')}, {_count(microbatches, 'micro-batch', 'es')}"
        return f"{self.schedule.name}{once}, {size}"

    def facts(self) -> dict[str, list[str]]:
        """What is counted on the timeline, and beside it the formula; each a few short lines."""
        schedule = self.schedule
        facts = {
            "bubble": [f"{self.timeline.bubble:.1%} of the stages' time".replace("%", " %")],
            "live activations": [
                _per_stage([self.timeline.peak_live(s) for s in range(schedule.num_stages)])
            ],
        }
        if schedule.updates_inside:
            facts["weight versions"] = facts["live activations"][:1]
        down, up = (_count(schedule.num_microbatches, noun) for noun in ("activation", "gradient"))
        facts["messages"] = ["none" if schedule.num_stages == 1 else f"{down} and {up} between neighbours"]
        if self.formula is not None:
            stages, microbatches = schedule.num_stages, schedule.num_microbatches
            value = f"{bubble(schedule.name, stages, microbatches):.1%}".replace("%", " %")
            facts["bubble"].append(f"formula: {self.formula.bubble} = {value}")
            if self.formula.where:
                facts["bubble"].append(f"where {self.formula.where}")
            if not self.formula.is_exact(stages, microbatches):
                facts["bubble"].append(f"the formula is exact for {self.formula.exact}")
            facts["live activations"].append(f"formula: {self.formula.peak_live}")
            facts["in formulas"] = ["p stages, m micro-batches, stage s counted from 0"]
        return facts


def explain_schedule(
    name: str, stages: int, microbatches: int, weights_once: bool = False
) -> ScheduleExplanation:
    """Build the schedule of a name, validate it and compute its timeline.

    >>> explain_schedule("1f1b", stages=4, microbatches=8).timeline.makespan
    33.0
    """
    if name not in SCHEDULES:
        raise ConfigError(unknown("schedule", name, SCHEDULES))
    if not 1 <= stages <= MAX_STAGES:
        raise ConfigError(f"explain takes 1 to {MAX_STAGES} stages, not {stages}")
    if not 1 <= microbatches <= MAX_MICROBATCHES:
        raise ConfigError(f"explain takes 1 to {MAX_MICROBATCHES} micro-batches, not {microbatches}")
    schedule = build(name, stages, microbatches)
    if weights_once:
        schedule = with_weights_once(schedule)
    validate(schedule)
    summary = summary_of(name)
    formula = None if weights_once else FORMULAS[name]
    return ScheduleExplanation(schedule, summary, timeline(schedule.rows), formula)


def summary_of(name: str) -> str:
    """The first line of a schedule's documentation."""
    return (SCHEDULES[name].__doc__ or "").strip().splitlines()[0]


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{plural * (number != 1)}"


def _per_stage(counts: Sequence[int]) -> str:
    """One number per stage, shortened where they are many.

    >>> _per_stage([4, 3, 2, 1]), _per_stage([8, 8, 8])
    ('at most 4, 3, 2, 1 on stages 0 to 3', 'at most 8 on every stage')
    """
    if len(set(counts)) == 1:
        return f"at most {counts[0]} on {'every stage' if len(counts) > 1 else 'the only stage'}"
    if len(counts) <= 8:
        return f"at most {', '.join(map(str, counts))} on stages 0 to {len(counts) - 1}"
    return f"at most {counts[0]} on stage 0, down to {counts[-1]} on stage {len(counts) - 1}"
