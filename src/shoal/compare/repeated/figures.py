"""Figures of a repeated comparison: validation against steps, time and bytes, and what is best for each cost.

A point is the mean over the seeds; a band or a bar is its 95 % interval. The front joins the rows that no other row
beats both in cost and on the validation set.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from shoal.compare.comparison import ComparedRun
from shoal.compare.repeated.rows import Measure, Row, Rows
from shoal.events.file import read_events
from shoal.events.steps import steps_of
from shoal.report.canvas import Drawing, font_for
from shoal.report.curves import Dash, Line, Panel, Style, column_pdf, draw
from shoal.report.finished_runs import Array
from shoal.report.student import interval_of
from shoal.words import Words

Cost = Literal["steps", "time", "bytes"]
COSTS: tuple[Cost, ...] = ("steps", "time", "bytes")
MOST_STYLES = 8
"""With more rows, curves are of tuned rows and of variants without a sweep, and the points of a variant look alike."""
MOST_BANDS = 4
"""With more curves, bands hide each other, so only the reference and the tuned rows have one."""
MOST_TICKS = 5
WIDE = 20.0
"""Costs that differ by more than this factor have a logarithmic axis."""
COLOURS = ("blue", "vermilion", "green", "orange", "purple", "sky", "brown")
DASHES: tuple[Dash, ...] = ("solid", "dashed", "dash-dotted")
MARKERS = "s^vDPXd"


def figures(rows: Rows, words: Words) -> tuple[dict[str, Drawing], dict[str, bytes]]:
    """The drawings of the page, and each panel as a PDF for a column; nothing without a validation set."""
    panels = {"progress": list(_curves(rows, words)), "front": list(_fronts(rows, words))}
    font = font_for(words.lang)
    drawings, columns = dict[str, Drawing](), dict[str, bytes]()
    for name, found in panels.items():
        if found:
            drawings[name] = draw([panel for _, panel in found], font=font, height_in=2.8)
        columns |= {f"{name}-{cost}": column_pdf(panel, font=font) for cost, panel in found}
    return drawings, columns


def _panel(cost: Cost, lines: Sequence[Line], rows: Rows, words: Words) -> tuple[Cost, Panel]:
    x = np.concatenate([line.x for line in lines])
    is_wide = bool(x.min() > 0 and x.max() > WIDE * x.min())
    label = words(f"repeated.validation_{rows.measure.key}")
    spent = words(f"repeated.cost.{cost}")
    return cost, Panel("", spent, label, lines, is_wide, log_y=False, most_ticks=MOST_TICKS, widens=False)


def _curves(rows: Rows, words: Words) -> Iterator[tuple[Cost, Panel]]:
    """The validations of each row against each cost; with few rows all have a band."""
    drawn = _styles(rows)
    banded = [row for row, _ in drawn] if len(drawn) <= MOST_BANDS else [rows.reference, *rows.tuned]
    found = [
        (style, values, any(row is each for each in banded))
        for row, style in drawn
        if (values := progress(row)) is not None
    ]
    for number, cost in enumerate(COSTS):
        lines = list[Line]()
        for style, values, has_band in found:
            # One worker sends nothing, and others may not before their first validation.
            paid = (values[:, :, number] > 0).all(axis=0)
            if paid.any():
                chosen = values[:, paid]
                lines.append(_curve(style, chosen[:, :, number], chosen[:, :, -1], rows.measure, has_band))
        if lines:
            yield _panel(cost, lines, rows, words)


def _curve(style: Style, costs: Array, values: Array, measure: Measure, has_band: bool) -> Line:
    """The means over the seeds, which are the rows of both arrays."""
    intervals = [interval_of(each) for each in values.T.tolist()]
    x, y = costs.mean(axis=0), np.array([each.mean for each in intervals])
    if len(values) == 1 or not has_band:
        return Line(style, x, y)
    half = np.array([each.half for each in intervals])
    return Line(style, x, y, y - half, _possible(y + half, measure))


def _possible(values: Array, measure: Measure) -> Array:
    return np.minimum(values, 100.0) if measure.key == "accuracy" else values


def progress(row: Row) -> Array | None:
    """For each seed and each validation that all seeds have: the costs until then, in their order, and the value."""
    found = [_validations(run, row.measure) for run in row.runs]
    shortest = min(map(len, found))
    return np.array([each[:shortest] for each in found]) if shortest else None


def _validations(run: ComparedRun, measure: Measure) -> list[tuple[float, ...]]:
    of_ranks = [
        np.array(
            [
                (step.step, step.seconds, (step.sent_bytes or 0) * (run.workers > 1))
                for step in steps_of(read_events(path))
            ]
        )
        for path in sorted(run.run.folder.path.glob("events.rank*.jsonl"))
    ]
    of_ranks = [steps for steps in of_ranks if len(steps)]  # a parameter server makes none
    found: list[tuple[float, ...]] = []
    for record in run.run.validations:
        if record.get(measure.key) is None:
            continue
        seconds, sent = zip(
            *(steps[steps[:, 0] < record["step"], 1:].sum(axis=0) for steps in of_ranks), strict=True
        )
        spent = record["step"], max(seconds), sum(sent) / 1e6 / run.workers
        found.append((*map(float, spent), measure.factor * record[measure.key]))
    return found


def _fronts(rows: Rows, words: Words) -> Iterator[tuple[Cost, Panel]]:
    for cost in COSTS[1:]:
        if lines := _points(rows, cost, words):
            yield _panel(cost, lines, rows, words)


def _points(rows: Rows, cost: Cost, words: Words) -> list[Line]:
    """Where each row ends, with its interval, and the front."""
    lines: list[Line] = []
    ends: list[tuple[float, float]] = []
    for row, style in _styles(rows, every=True):
        spent = row.seconds.mean if cost == "time" else (row.sent_bytes or 0.0) / 1e6
        result = row.result("validation")
        if result is None or not spent:
            continue
        ends.append((spent, result.mean))
        lines.append(Line(replace(style, dash="solid"), np.array([spent]), np.array([result.mean])))
        bar, both = replace(style, marker="", dash="solid", width=1.0), np.array([-1.0, 1.0])
        if result.half:
            reach = result.mean + result.half * both
            lines.append(Line(bar, np.full(2, spent), _possible(reach, rows.measure)))
        if cost == "time" and row.seconds.half:
            reach = spent + row.seconds.half * both
            lines.append(Line(bar, np.maximum(reach, 0.0), np.full(2, result.mean)))
    best = front(ends, rows.measure.sign)
    if len(best) > 1:
        # The best that a cost affords stays the same up to the cost of the next one.
        x, y = np.repeat(np.array(best), 2, axis=0).T
        lines.insert(0, Line(Style(words("repeated.front"), "grey", "dashed", width=1.2), x[1:], y[:-1]))
    return lines


def front(ends: Sequence[tuple[float, float]], sign: int) -> list[tuple[float, float]]:
    """The pairs of cost and value that no other pair beats in both, the cheapest first.

    >>> front([(1.0, 5.0), (2.0, 4.0), (3.0, 7.0), (3.0, 6.0)], sign=1)
    [(1.0, 5.0), (3.0, 7.0)]
    """
    found: list[tuple[float, float]] = []
    for cost, value in sorted(ends, key=lambda end: (end[0], -sign * end[1])):
        if not found or sign * value > sign * found[-1][1]:
            found.append((cost, value))
    return found


def _styles(rows: Rows, every: bool = False) -> list[tuple[Row, Style]]:
    """The rows that are drawn, each with a style; many rows of one variant share its style if all are drawn."""
    shown = list(rows.rows)
    if len(shown) > MOST_STYLES and not every:
        shown = [row for row in shown if not row.swept_from or any(row is each for each in rows.tuned)][
            :MOST_STYLES
        ]
    labels = [row.swept_from or row.name if len(shown) > MOST_STYLES else row.name for row in shown]
    of_reference = next((each for row, each in zip(shown, labels, strict=True) if row is rows.reference), "")
    others = [label for label in dict.fromkeys(labels) if label != of_reference]
    styles = {
        label: Style(label, COLOURS[at % len(COLOURS)], DASHES[at % len(DASHES)], MARKERS[at % len(MARKERS)])
        for at, label in enumerate(others)
    }
    styles[of_reference] = Style(of_reference, "black", marker="o")
    return [(row, styles[label]) for row, label in zip(shown, labels, strict=True)]
