"""A schedule as a grid of text: a row for each stage, time from left to right."""

import math
import textwrap
from collections.abc import Callable, Iterator
from itertools import groupby

from shoal.explain.pipeline import ScheduleExplanation
from shoal.strategies.pipeline.schedule import ActionKind
from shoal.strategies.pipeline.timing import TimedAction

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


def _plain(kind: ActionKind | None, text: str) -> str:
    return text


def as_grid(explanation: ScheduleExplanation, width: int = 80, paint: Paint = _plain) -> str:
    """The timeline, folded where it is wider than `width`, and the figures.

    >>> from shoal.explain.pipeline import explain_schedule
    >>> print(as_grid(explain_schedule("1f1b", stages=2, microbatches=2)))
    1f1b, 2 stages, 2 micro-batches: 9 units of time
    One forward, one backward: GPipe's bubble with no more than p − s activations on stage s.
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
        *textwrap.wrap(explanation.summary, width),
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
