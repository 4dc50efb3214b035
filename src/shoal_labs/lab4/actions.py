"""What each stage of a pipeline did when: the timelines of a run's steps, read from its events."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median

from shoal.kit.findings import Measured, inside_run
from shoal.kit.runs import WARM_UP_STEPS, RunFolder, StepRecord, read_events, steps_of
from shoal.kit.strategies import ALL, Action, ActionKind, StageTimes, TimedAction, Timeline, timeline
from shoal.kit.strategies import build_schedule as build

_NAME = re.compile(r"([FBIW])(\d+|\*)")
K = ActionKind


@dataclass(frozen=True)
class PipelineSteps:
    """The steps of a pipeline, measured and ideal. Times are in milliseconds."""

    steps: Sequence[Timeline]
    """Every step but those that warm up, on one clock from its first action on."""
    ideal: Timeline
    """The same schedule, if every action takes its median time on its stage and messages take no time."""

    @cached_property
    def typical(self) -> Timeline:
        """The step with the median makespan."""
        return sorted(self.steps, key=lambda step: step.makespan)[len(self.steps) // 2]

    @cached_property
    def makespan(self) -> Measured:
        """From the first action of a step to the last."""
        return inside_run([step.makespan for step in self.steps])

    @cached_property
    def bubble(self) -> Measured:
        """The fraction of all stages' time in which they do not compute."""
        return inside_run([step.bubble for step in self.steps])

    @cached_property
    def live(self) -> tuple[int, ...]:
        """The largest number of micro-batches whose activations each stage holds at once, counted in the events."""
        return tuple(
            max(step.peak_live(stage) for step in self.steps) for stage in range(len(self.ideal.rows))
        )

    @cached_property
    def stage_ms(self) -> tuple[float, ...]:
        """The computing time of each stage in a step."""
        return tuple(
            median([step.busy(stage) for step in self.steps]) for stage in range(len(self.ideal.rows))
        )


def read_pipelined(path: Path, schedule: str, stages: int, microbatches: int) -> PipelineSteps:
    """The timelines of a traced run."""
    folder = RunFolder(path)
    ranks = [steps_of(read_events(folder.events(rank))) for rank in range(stages)]
    made = [step for step in _aligned(ranks) if step.makespan]
    steps = made[WARM_UP_STEPS:] or made
    times = [_times([step.rows[stage] for step in steps]) for stage in range(stages)]
    return PipelineSteps(steps, timeline(build(schedule, stages, microbatches).rows, times))


def action_of(name: str) -> Action | None:
    """The action that a span records; None for other spans.

    >>> action_of("W*") == Action(ActionKind.BACKWARD_WEIGHT, ALL), action_of("update")
    (True, None)
    """
    match = _NAME.fullmatch(name)
    return Action(K(match[1]), ALL if match[2] == "*" else int(match[2])) if match else None


def _aligned(ranks: Sequence[Sequence[StepRecord]]) -> Iterator[Timeline]:
    """The steps of all stages, each from its own first action on."""
    for records in zip(*ranks, strict=True):
        rows = [
            [
                (span.start_ns, span.end_ns, action)
                for span in record.spans or ()
                if span.kind == "compute" and (action := action_of(span.name))
            ]
            for record in records
        ]
        first_ns = min((start for row in rows for start, _, _ in row), default=0)
        yield Timeline(
            tuple(
                tuple(
                    TimedAction(action, (start - first_ns) / 1e6, (end - first_ns) / 1e6)
                    for start, end, action in row
                )
                for row in rows
            )
        )


def _times(rows: Sequence[Sequence[TimedAction]]) -> StageTimes:
    """The median time of each kind of action of one stage."""

    def usual(kind: ActionKind) -> float:
        found = [each.end - each.start for row in rows for each in row if each.action.kind is kind]
        return median(found) if found else 0.0

    return StageTimes(usual(K.FORWARD), usual(K.BACKWARD), usual(K.BACKWARD_INPUT), usual(K.BACKWARD_WEIGHT))
