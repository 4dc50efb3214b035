"""Timelines as SVG: a row for each stage, time from left to right, folded to a width that a phone can show.

The colours are those of drawn graphs, so `report.svg` makes them follow the reader's light or dark theme.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from html import escape

from shoal.explain.grid import TICK, WORDS, balanced
from shoal.explain.pipeline import ScheduleExplanation
from shoal.parallel.layout.pipeline.schedule import ActionKind
from shoal.parallel.layout.pipeline.timing import TimedAction
from shoal.report.svg import COLOURS, FRAME, GRAPH, for_file

WIDTH = 480
"""Pixels: text of 12 is still 9 pixels high on a phone of 360."""
MARGIN, ROW, GAP = 10, 26, 3
SMALL, FONT, LARGE = 11, 12, 15
LETTER = 0.6 * FONT
"""Width of a letter, about."""
FILLS = {
    ActionKind.FORWARD: (GRAPH["forward"], GRAPH["forward-line"]),
    ActionKind.BACKWARD: (GRAPH["backward"], GRAPH["backward-line"]),
    ActionKind.BACKWARD_INPUT: (GRAPH["backward"], GRAPH["backward-line"]),
    ActionKind.BACKWARD_WEIGHT: (GRAPH["result"], GRAPH["result-line"]),
    ActionKind.UPDATE: (COLOURS["indigo"], COLOURS["indigo"]),
}
"""Fill and line of each kind of action."""


def as_drawing(explanation: ScheduleExplanation) -> str:
    """The timeline of a schedule as an SVG file, with the figures below it."""
    notes: list[str] = []
    for name, (counted, *formulas) in explanation.facts().items():
        notes += [f"{name}: {counted}", *formulas]
    return for_file(draw_timeline(explanation.timeline.rows, explanation.title, notes))


def draw_timeline(
    rows: Sequence[Sequence[TimedAction]],
    title: str,
    notes: Sequence[str] = (),
    words: Mapping[ActionKind, str] = WORDS,
    *,
    idle: str = "idle",
    stage: str = "stage {}",
    time: str = "time",
    unit: float | None = None,
    width: float = WIDTH,
) -> str:
    """Timelines of stages, of a schedule or measured, with their legend.

    `unit` is the number of pixels for one unit of time: by default, as many as the label of an action needs.
    """
    makespan = max((row[-1].end for row in rows if row), default=0.0)
    label = max(len(stage.format(len(rows) - 1)), len(time)) * LETTER + MARGIN
    scale = unit or max(20.0, LETTER * max(len(str(each.action)) for row in rows for each in row) + 4)
    room = width - label - MARGIN
    length = balanced(max(math.ceil(makespan), 1), max(int(room / scale), 1))
    if length < makespan:
        scale = room / length
    right = max(label + length * scale + MARGIN, width)
    parts: list[str] = []
    y = 4.0
    for line in textwrap.wrap(title, int((right - 2 * MARGIN) / (0.65 * LARGE))):
        y += 20
        parts.append(
            f'<text x="{MARGIN}" y="{y:g}" font-size="{LARGE}" font-weight="bold" fill="{GRAPH["title"]}">'
            f"{escape(line)}</text>"
        )
    legend, y = _legend(rows, words, idle, y + 12, right)
    parts += legend
    for start in range(0, max(math.ceil(makespan), 1), length):
        stop = min(start + length, makespan)
        parts += _axis(start, stop, label, scale, y, time)
        y += 20
        for number, row in enumerate(rows):
            parts.append(
                f'<text x="{MARGIN}" y="{y + 17:g}" fill="{GRAPH["legend"]}">{escape(stage.format(number))}</text>'
                f'<rect x="{label:g}" y="{y:g}" width="{(stop - start) * scale:g}" height="{ROW - GAP}" '
                f'fill="{FRAME["faint"]}"/>'
            )
            parts += [
                _action(each, start, stop, label, scale, y) for each in row if _is_in(each, start, stop)
            ]
            y += ROW
        y += 10
    for note in notes:
        # The letters of a sentence are narrower than those of a label.
        for line in textwrap.wrap(note, int((right - 2 * MARGIN) / (0.85 * LETTER))):
            y += 17
            parts.append(f'<text x="{MARGIN}" y="{y:g}" fill="{GRAPH["title"]}">{escape(line)}</text>')
    height = y + 14
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right:g} {height:g}" width="{right:g}" '
        f'font-family="system-ui, sans-serif" font-size="{FONT}" style="max-width: 100%; height: auto">'
    )
    paper = f'<rect width="{right:g}" height="{height:g}" fill="{FRAME["paper"]}"/>'
    return "\n".join([head, paper, *parts, "</svg>"]) + "\n"


def _is_in(each: TimedAction, start: float, stop: float) -> bool:
    """Whether a part of the action falls into a band; one without length belongs to the band that ends with it."""
    return each.start < stop and each.end > start if each.end > each.start else start < each.end <= stop


def _action(each: TimedAction, start: float, stop: float, label: float, scale: float, y: float) -> str:
    fill, line = FILLS[each.action.kind]
    if each.end == each.start:  # a mark at the end of the action before it
        x = label + (each.end - start) * scale - 5
        mark = f'<rect x="{x:g}" y="{y + 2:g}" width="4" height="{ROW - GAP - 4}" fill="{fill}"/>'
        return f"<g><title>{each.action}</title>{mark}</g>"
    begin, end = max(each.start, start), min(each.end, stop)
    x, wide = label + (begin - start) * scale, (end - begin) * scale
    box = (
        f'<rect x="{x + 0.5:g}" y="{y + 0.5:g}" width="{max(wide - 1, 0.5):g}" height="{ROW - GAP - 1}" rx="2" '
        f'fill="{fill}" stroke="{line}"/>'
    )
    text = str(each.action)
    hover = f"<title>{text}: {each.start:g} to {each.end:g}</title>"
    shown = text if begin == each.start else "…"  # the rest of an action that is folded
    if len(shown) * LETTER > wide:
        return f"<g>{hover}{box}</g>"
    words = (
        f'<text x="{x + wide / 2:g}" y="{y + 16:g}" font-size="{SMALL}" text-anchor="middle" '
        f'fill="{GRAPH["title"]}">{shown}</text>'
    )
    return f"<g>{hover}{box}{words}</g>"


def _axis(start: float, stop: float, label: float, scale: float, y: float, time: str) -> list[str]:
    step = TICK * max(1, math.ceil((stop - start) / 60))
    first = math.ceil(start / step) * step
    colour = GRAPH["source-line"]
    parts = [f'<text x="{MARGIN}" y="{y + 14:g}" font-size="{SMALL}" fill="{colour}">{escape(time)}</text>']
    for tick in range(first, math.ceil(stop), step):
        x = label + (tick - start) * scale
        parts.append(
            f'<path d="M{x:g} {y + 16:g} v4" stroke="{colour}"/>'
            f'<text x="{x + 2:g}" y="{y + 14:g}" font-size="{SMALL}" fill="{colour}">{tick}</text>'
        )
    return parts


def _legend(
    rows: Sequence[Sequence[TimedAction]], words: Mapping[ActionKind, str], idle: str, y: float, right: float
) -> tuple[list[str], float]:
    """Boxes with what they stand for, on one line or more; and where the drawing goes on."""
    used = {each.action.kind for row in rows for each in row}
    entries = [(*FILLS[kind], f"{kind.value} {word}") for kind, word in words.items() if kind in used]
    parts: list[str] = []
    x = float(MARGIN)
    for fill, line, word in [*entries, (FRAME["faint"], FRAME["rule"], idle)]:
        wide = 26 + len(word) * LETTER
        if x + wide > right and x > MARGIN:
            x, y = float(MARGIN), y + 18
        parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="12" height="12" rx="2" fill="{fill}" stroke="{line}"/>'
            f'<text x="{x + 17:g}" y="{y + 10:g}" fill="{GRAPH["legend"]}">{escape(word)}</text>'
        )
        x += wide
    return parts, y + 20
