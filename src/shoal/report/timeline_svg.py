"""The timeline of a run as a drawing: for each of its steps a row per worker, with calls joined and the critical path.

Places in time are percentages of an SVG inside the drawing. `timeline.js` zooms by making that one wider, so letters
and rows keep their size; without the script it is a picture. Tooltips give names and durations.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise

from shoal.report.canvas import PAGE_IN, PHONE_IN
from shoal.report.svg import COLOURS, FRAME, LOOKS, SMALL, svg_of, svg_text, text_width
from shoal.report.timeline import Interval, Part, Row, StepTimeline
from shoal.report.timeline_text import milliseconds, rank_name, shown_rows, step_title, used_parts
from shoal.words import Words

PIXELS_PER_IN = 96
LOOK_OF: dict[Part, tuple[str, str]] = {
    "data": (COLOURS["sky"], ""),
    "compute": LOOKS["compute"],
    "encode": LOOKS["encode"],
    "move": LOOKS["move"],
    "wait": LOOKS["wait"],
    "idle": LOOKS["other"],
}
HATCHES = {"||||": "M2 0V5", "////": "M-1 1L1 -1M0 5L5 0M4 6L6 4", "....": "M2 2h1"}
"""The path that a tile of 5 pixels repeats."""
TITLE, BAR, ROW, AXIS, GAP = 22, 16, 25, 18, 12
"""Heights in pixels."""
TICK_EVERY = 70
MOST_INTERVALS = 300
"""In a row with more intervals than this, short neighbours are drawn as one."""
MOST_JOINS = 200
INK, PAPER = FRAME["ink"], FRAME["paper"]


def drawings_of(steps: Mapping[str, StepTimeline], words: Words) -> tuple[str, str]:
    """The drawing of steps, by what each is, for a page; and the one for a phone."""
    return _drawing(steps, words, PAGE_IN * PIXELS_PER_IN), _drawing(steps, words, PHONE_IN * PIXELS_PER_IN)


def _drawing(steps: Mapping[str, StepTimeline], words: Words, wide: float) -> str:
    labels = [rank_name(row.rank, words) for step in steps.values() for row in step.rows]
    left = max(text_width(label, SMALL) for label in labels) + 8
    y, parts = 4.0, [_hatches()]
    for name, step in steps.items():
        parts.append(svg_text(step_title(name, step, words), 0, y + 12, INK, 'font-weight="bold"'))
        y += TITLE
        rows = shown_rows(step)
        for number, row in enumerate(rows):
            parts.append(
                svg_text(rank_name(row.rank, words), 0, y + ROW * number + 12, INK, f'font-size="{SMALL}"')
            )
        high = ROW * len(rows) + AXIS
        parts += [_view(step, rows, words, left, y, wide - left, high)]
        y += high + GAP
        if hidden := len(step.rows) - len(rows):
            parts.append(
                svg_text(words("timeline.hidden", count=hidden), left, y, INK, f'font-size="{SMALL}"')
            )
            y += GAP
    bottom, legend = _legend(steps, words, wide, y)
    return svg_of(wide, bottom, [*parts, *legend])


def _hatches() -> str:
    """A pattern for each hatched part: its colour, with lines of paper."""
    patterns = [
        f'<pattern id="{part}" width="5" height="5" patternUnits="userSpaceOnUse">'
        f'<rect width="5" height="5" fill="{colour}"/>'
        f'<path d="{HATCHES[hatch]}" stroke="{PAPER}" stroke-width="0.9" fill="none"/></pattern>'
        for part, (colour, hatch) in LOOK_OF.items()
        if hatch
    ]
    return f"<defs>{''.join(patterns)}</defs>"


def _fill(part: Part) -> str:
    colour, hatch = LOOK_OF[part]
    return f"url(#{part})" if hatch else colour


def _view(
    step: StepTimeline, rows: Sequence[Row], words: Words, x: float, y: float, wide: float, high: float
) -> str:
    """The rows of a step. What is in the inner SVG is placed in percent of its width, so it can be stretched."""
    content = "\n".join(
        [
            *_ticks(step, wide, high - AXIS),
            *(line for number, row in enumerate(rows) for line in _row(step, row, words, number * ROW)),
            *_joins(step, rows, words),
            *_path(step, rows),
        ]
    )
    total_ms = (step.end_ns - step.start_ns) / 1e6
    zoom = [words(f"timeline.zoom_{name}") for name in ("in", "out", "whole", "how")]
    place = f'x="{x:.1f}" y="{y:g}" width="{wide:.1f}" height="{high:g}"'
    data = f'data-ms="{total_ms:.6g}" data-words="{escape(json.dumps(zoom))}"'
    return (
        f'<svg class="timeline" {data} {place} overflow="hidden">'
        f'<rect width="100%" height="{high:g}" fill="{PAPER}" fill-opacity="0"/>'
        f'<svg class="stretched" x="0" width="100%" height="{high:g}" overflow="visible">\n{content}\n</svg></svg>'
    )


def _ticks(step: StepTimeline, wide: float, high: float) -> Iterator[str]:
    """Lines with milliseconds since the step began; `timeline.js` draws others in their place."""
    total_ms = max((step.end_ns - step.start_ns) / 1e6, 1e-6)
    tick_ms = next(
        size * 10**power
        for power in range(-6, 9)
        for size in (1, 2, 5)
        if size * 10**power >= total_ms / (wide / TICK_EVERY)
    )
    yield '<g class="ticks">'
    for number in range(int(total_ms / tick_ms) + 1):
        at = 100 * number * tick_ms / total_ms
        last_room = (100 - at) * wide / 100 < 40
        yield f'<line x1="{at:.5g}%" x2="{at:.5g}%" y1="0" y2="{high:g}" stroke="{FRAME["grid"]}"/>'
        label = f"{number * tick_ms:.6g}{' ms' * (number == 0)}"
        anchor = ' text-anchor="end"' * last_room
        yield f'<text x="{at:.5g}%" y="{high + 12:g}" font-size="{SMALL}" fill="{INK}"{anchor}>{label}</text>'
    yield "</g>"


def _row(step: StepTimeline, row: Row, words: Words, y: float) -> Iterator[str]:
    for each in thinned(row.intervals):
        part = words(f"kind.{each.part}")
        name = f"{each.name}: {part}" if each.name else part
        since_ms = milliseconds(each.start_ns - step.start_ns)
        title = words("timeline.interval", name=name, ms=milliseconds(each.duration_ns), since=since_ms)
        yield (
            f'<rect x="{_percent(step, each.start_ns)}" width="{100 * each.duration_ns / _length(step):.5g}%" '
            f'y="{y:g}" height="{BAR}" fill="{_fill(each.part)}"><title>{escape(title)}</title></rect>'
        )


def thinned(intervals: Sequence[Interval], most: int = MOST_INTERVALS) -> list[Interval]:
    """The intervals; of very many, neighbours that are short become one of the part that has most of their time."""
    if len(intervals) <= most:
        return list(intervals)
    least_ns = (intervals[-1].end_ns - intervals[0].start_ns) / most
    found: list[list[Interval]] = []
    for each in intervals:
        group = found[-1] if found else []
        if group and each.duration_ns < least_ns and each.end_ns - group[0].start_ns < least_ns:
            group.append(each)
        else:
            found.append([each])
    return [
        max(group, key=lambda each: each.duration_ns)._replace(
            start_ns=group[0].start_ns, end_ns=group[-1].end_ns
        )
        for group in found
    ]


def _joins(step: StepTimeline, rows: Sequence[Row], words: Words) -> Iterator[str]:
    """A line from where each member entered a call to where the next one did; of very many, the longest waits."""
    places = {row.rank: number for number, row in enumerate(rows)}
    spread = {id(join): max(join.arrived_ns.values()) - min(join.arrived_ns.values()) for join in step.joins}
    for join in sorted(step.joins, key=lambda join: -spread[id(join)])[:MOST_JOINS]:
        members = sorted((places[rank], moment) for rank, moment in join.arrived_ns.items() if rank in places)
        last = words(
            "timeline.join",
            name=join.name,
            last=rank_name(join.last, words),
            ms=milliseconds(spread[id(join)]),
        )
        for (upper, from_ns), (lower, to_ns) in pairwise(members):
            yield (
                f'<line x1="{_percent(step, from_ns)}" y1="{upper * ROW + 1}" x2="{_percent(step, to_ns)}" '
                f'y2="{lower * ROW + BAR - 1}" stroke="{INK}" stroke-opacity="0.6"><title>{escape(last)}</title></line>'
            )


def _path(step: StepTimeline, rows: Sequence[Row]) -> Iterator[str]:
    """A thick line below the bars of the worker on the critical path, and from worker to worker."""
    if len(rows) < 2:
        return
    below = {row.rank: number * ROW + BAR + 3 for number, row in enumerate(rows)}
    strong = f'stroke="{INK}" stroke-width="3" stroke-linecap="round"'
    on_path = [part for part in step.path if part.rank in below]
    for part in on_path:
        y, start, end = below[part.rank], _percent(step, part.start_ns), _percent(step, part.end_ns)
        yield f'<line x1="{start}" x2="{end}" y1="{y}" y2="{y}" {strong}/>'
    for later, earlier in pairwise(on_path):
        x = _percent(step, later.start_ns)
        yield f'<line x1="{x}" x2="{x}" y1="{below[later.rank]}" y2="{below[earlier.rank]}" {strong}/>'


def _length(step: StepTimeline) -> int:
    return max(step.end_ns - step.start_ns, 1)


def _percent(step: StepTimeline, moment_ns: int) -> str:
    return f"{100 * (moment_ns - step.start_ns) / _length(step):.5g}%"


def _legend(
    steps: Mapping[str, StepTimeline], words: Words, wide: float, y: float
) -> tuple[float, list[str]]:
    """The bottom of the drawing, and its legend."""
    entries = [
        (words(f"kind.{part}"), f'<rect width="12" height="12" fill="{_fill(part)}"/>')
        for part in used_parts(steps)
    ]
    if any(len(step.rows) > 1 for step in steps.values()):
        thick = f'<line x1="0" x2="14" y1="6" y2="6" stroke="{INK}" stroke-width="3" stroke-linecap="round"/>'
        thin = f'<line x1="2" x2="10" y1="0" y2="12" stroke="{INK}" stroke-opacity="0.6"/>'
        entries += [(words("timeline.critical"), thick), (words("timeline.same_call"), thin)]
    x, parts = 0.0, list[str]()
    for label, sign in entries:
        room = 34 + text_width(label, SMALL)
        if x and x + room > wide:
            x, y = 0.0, y + 20
        parts.append(f'<g transform="translate({x:.1f} {y:g})">{sign}{svg_text(label, 18, 10, INK)}</g>')
        x += room
    return y + 18, parts
