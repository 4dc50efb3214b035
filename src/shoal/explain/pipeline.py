"""How a pipeline schedule works: its ideal timeline, and the figures counted on it beside the published formulas.

`as_grid` shows it as text: a row for each stage, time from left to right.
"""

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from shoal.errors import ConfigError
from shoal.printable import counted
from shoal.strategies.pipeline.schedule import ActionKind, Schedule
from shoal.strategies.pipeline.schedules import (
    FORMULAS,
    ScheduleFormula,
    build,
    function_of,
    with_weights_once,
)
from shoal.strategies.pipeline.timing import UNIT_TIMES, TimedAction, Timeline, timeline
from shoal.strategies.pipeline.validate import validate

MAX_STAGES, MAX_MICROBATCHES = 32, 64

Paint = Callable[[ActionKind | None, str], str]
"""Colours a piece of text by the action it stands for; None is idle time."""
Cell = tuple[ActionKind | None, str]
"""One character, and what it stands for."""

MOST_LINES = 64
"""Of the grid; what does not fit is cut."""
TICK = 5
WORDS = {
    ActionKind.FORWARD: "forward",
    ActionKind.BACKWARD: "backward",
    ActionKind.BACKWARD_INPUT: "input gradient",
    ActionKind.BACKWARD_WEIGHT: "weight gradient",
    ActionKind.UPDATE: "update",
}


@dataclass(frozen=True)
class ScheduleExplanation:
    """A schedule, when each of its actions runs if F = I = W = 1 and B = 2, and what is known about it."""

    schedule: Schedule
    summary: str
    timeline: Timeline
    formula: ScheduleFormula | None
    """None where none is published: with weight gradients once per step, and for a schedule of the user's own."""
    weights_once: bool = False

    @property
    def title(self) -> str:
        """The schedule and its size."""
        stages, microbatches = self.schedule.num_stages, self.schedule.num_microbatches
        once = " with weight gradients once per step" if self.weights_once else ""
        size = f"{counted(stages, 'stage')}, {counted(microbatches, 'micro-batch', 'es')}"
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
        down, up = (counted(schedule.num_microbatches, noun) for noun in ("activation", "gradient"))
        facts["messages"] = ["none" if schedule.num_stages == 1 else f"{down} and {up} between neighbours"]
        if self.formula is not None:
            stages, microbatches = schedule.num_stages, schedule.num_microbatches
            value = f"{self.formula.bubble_of(stages, microbatches, UNIT_TIMES):.1%}".replace("%", " %")
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
    summary = (function_of(name).__doc__ or "").strip().partition("\n")[0]
    if not 1 <= stages <= MAX_STAGES:
        raise ConfigError(f"explain takes 1 to {MAX_STAGES} stages, not {stages}")
    if not 1 <= microbatches <= MAX_MICROBATCHES:
        raise ConfigError(f"explain takes 1 to {MAX_MICROBATCHES} micro-batches, not {microbatches}")
    schedule = build(name, stages, microbatches)
    if weights_once:
        schedule = with_weights_once(schedule)
    validate(schedule)
    formula = None if weights_once else FORMULAS.get(name)
    return ScheduleExplanation(schedule, summary, timeline(schedule.rows), formula, weights_once)


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


def as_grid(explanation: ScheduleExplanation, width: int = 80, paint: Paint = lambda kind, text: text) -> str:
    """The timeline, folded where it is wider than `width`, and the figures.

    >>> print(as_grid(explain_schedule("1f1b", stages=2, microbatches=2)))
    1f1b, 2 stages, 2 micro-batches: 9 units of time
    <BLANKLINE>
    time     0         5
    stage 0  F0F1· · B0──· B1──
    stage 1  · F0B0──F1B1──· ·
    <BLANKLINE>
    F forward (1 unit), B backward (2), · idle
    <BLANKLINE>
    bubble            33.3 % of the stages' time
                      formula: (p − 1) / (m + p − 1) = 33.3 %
    live activations  at most 2, 1 on stages 0 to 1
                      formula: min(p − s, m)
    messages          2 activations and 2 gradients between neighbours
    in formulas       p stages, m micro-batches, stage s counted from 0
    """
    facts = explanation.facts()
    label = max(map(len, facts)) + 2
    lines = [
        *textwrap.wrap(f"{explanation.title}: {explanation.timeline.makespan:g} units of time", width),
        "",
        *_bands(explanation, width, paint),
        _legend(explanation, paint),
        "",
    ]
    for name, values in facts.items():
        for number, value in enumerate(values):
            lines.append(f"{'' if number else name:{label}}{value}")
    return "\n".join(lines)


def _bands(explanation: ScheduleExplanation, width: int, paint: Paint) -> Iterator[str]:
    """The grid in one band, or in several below each other."""
    rows, makespan = explanation.timeline.rows, math.ceil(explanation.timeline.makespan)
    margin = len(f"stage {len(rows) - 1}  ")
    unit = max(2, len(f"F{explanation.schedule.num_microbatches - 1}"))
    cells = [_cells(row, makespan, unit) for row in rows]
    most = max((width - margin) // unit, 1)
    length = balanced(makespan, most)
    count = math.ceil(makespan / length)
    shown = min(count, max(MOST_LINES // (len(rows) + 2), 1))
    for band in range(shown):
        start, stop = band * length, min((band + 1) * length, makespan)
        yield f"{'time':{margin}}{_ticks(start, stop, unit)}"
        for stage, row in enumerate(cells):
            name = f"stage {stage}"
            yield f"{name:{margin}}{_painted(row[start * unit : stop * unit], paint)}"
        yield ""
    if shown < count:
        yield from textwrap.wrap(
            f"Cut at time {shown * length} of {makespan}; --svg FILE draws all of it.", width
        )
        yield ""


def balanced(makespan: int, most: int) -> int:
    """The length of a band of time: all bands about as long as each other, and each from one tick to another.

    >>> balanced(33, most=35), balanced(96, most=35), balanced(144, most=23), balanced(33, most=3)
    (33, 35, 20, 3)
    """
    if makespan <= most:
        return makespan
    length = math.ceil(makespan / math.ceil(makespan / most))
    return min(math.ceil(length / TICK), most // TICK) * TICK or length


def _cells(row: tuple[TimedAction, ...], makespan: int, unit: int) -> list[Cell]:
    """Every character of a row. An action that takes no time marks the end of the one before it."""
    idle: list[Cell] = [(None, character) for character in "·" + " " * (unit - 1)]
    cells = idle * makespan
    for each in row:
        start, stop = round(each.start * unit), round(each.end * unit)
        kind = each.action.kind
        if start == stop:
            cells[stop - 1] = (kind, kind.value)
        else:
            cells[start:stop] = [(kind, character) for character in f"{each.action!s:─<{stop - start}}"]
    return cells


def _ticks(start: int, stop: int, unit: int) -> str:
    times = range(start + -start % TICK, stop, TICK)
    return " " * (-start % TICK * unit) + "".join(f"{time:<{TICK * unit}}" for time in times)


def _painted(cells: list[Cell], paint: Paint) -> str:
    while cells[-1] == (None, " "):
        cells = cells[:-1]
    return "".join(
        paint(kind, "".join(character for _, character in run))
        for kind, run in groupby(cells, key=lambda cell: cell[0])
    )


def _legend(explanation: ScheduleExplanation, paint: Paint) -> str:
    """Every kind of action with its time."""
    times = {each.action.kind: each.end - each.start for row in explanation.timeline.rows for each in row}
    entries = [
        f"{paint(kind, kind.value)} {word} ({times[kind]:g}{' unit' * (kind is ActionKind.FORWARD)})"
        for kind, word in WORDS.items()
        if kind in times
    ]
    return ", ".join([*entries, f"{paint(None, '·')} idle"])
