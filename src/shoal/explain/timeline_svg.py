"""Timelines as SVG: a row for each stage, time from left to right, folded to a width that a phone can show.

The colours are those of drawn graphs, so `report.svg` makes them follow the reader's light or dark theme.
"""

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low

from shoal.explain.pipeline import TICK, WORDS, ScheduleExplanation, balanced
from shoal.report.svg import (
    COLOURS,
    FONT,
    FRAME,
    GRAPH,
    LARGE,
    SMALL,
    for_file,
    svg_box,
    svg_of,
    svg_text,
    text_width,
)
from shoal.strategies.pipeline.schedule import ActionKind
from shoal.strategies.pipeline.timing import TimedAction

WIDTH = 480
"""Pixels: text of 12 is still 9 pixels high on a phone of 360."""
MARGIN, ROW, GAP, AXIS = 10, 26, 3, 20
FILLS = {
    ActionKind.FORWARD: (GRAPH["forward"], GRAPH["forward-line"]),
    ActionKind.BACKWARD: (GRAPH["backward"], GRAPH["backward-line"]),
    ActionKind.BACKWARD_INPUT: (GRAPH["backward"], GRAPH["backward-line"]),
    ActionKind.BACKWARD_WEIGHT: (GRAPH["result"], GRAPH["result-line"]),
    ActionKind.UPDATE: (COLOURS["indigo"], COLOURS["indigo"]),
}
"""Fill and line of each kind of action."""

Rows = Sequence[Sequence[TimedAction]]


@dataclass(frozen=True)
class TimelineWords:
    """The words of a drawing, in the reader's language."""

    kinds: Mapping[ActionKind, str] = field(default_factory=lambda: WORDS)
    idle: str = "idle"
    stage: str = "stage {}"
    time: str = "time"


ENGLISH = TimelineWords()


def as_drawing(explanation: ScheduleExplanation) -> str:
    """The timeline of a schedule as an SVG file, with the figures below it."""
    notes: list[str] = []
    for name, (counted, *formulas) in explanation.facts().items():
        notes += [f"{name}: {counted}", *formulas]
    return for_file(draw_timeline(explanation.timeline.rows, explanation.title, notes))


def draw_timeline(
    rows: Rows,
    title: str,
    notes: Sequence[str] = (),
    words: TimelineWords = ENGLISH,
) -> str:
    """Timelines of stages, of a schedule or measured, with a legend above and notes below.

    Times start at 0 and are numbers of some units, such as milliseconds. Most actions are wide enough for their label.
    """
    labels = [words.stage.format(len(rows) - 1), words.time]
    left = max(text_width(label, FONT) for label in labels) + MARGIN + 4
    picture = _Picture(rows, words, left, WIDTH - MARGIN)
    parts = [*picture.title(title), *picture.legend()]
    for start in range(0, math.ceil(picture.makespan), picture.length):
        parts += picture.band(start)
    parts += picture.notes(notes)
    return svg_of(WIDTH, picture.y + 14, parts)


class _Picture:
    """Draws from top to bottom; `y` is where it goes on."""

    def __init__(self, rows: Rows, words: TimelineWords, left: float, right: float) -> None:
        self.rows, self.words, self.left, self.right = rows, words, left, right
        self.y = 4.0
        actions = [each for row in rows for each in row]
        self.makespan = max([each.end for each in actions], default=1.0)
        usual = median_low([each.end - each.start for each in actions if each.end > each.start] or [1.0])
        label = max([20.0, *(text_width(str(each.action), SMALL) + 4 for each in actions)])
        most = (right - left) / label * usual
        self.length = balanced(math.ceil(self.makespan), max(int(most), 1))
        """Units of time in a band."""
        # The bands fill the width, unless the timeline is so short that its boxes would be huge.
        self.scale = (right - left) / max(self.length, most / 2)
        """Pixels of a unit of time."""
        self._in_band: dict[tuple[int, int], list[TimedAction]] = {}
        for stage, row in enumerate(rows):
            for each in row:
                for band in self._bands_of(each):
                    self._in_band.setdefault((band, stage), []).append(each)

    def _bands_of(self, each: TimedAction) -> range:
        """The bands that an action is drawn in; one that takes no time belongs to the end of the one before it."""
        last = max(math.ceil(each.end / self.length) - 1, 0)
        return range(min(int(each.start // self.length), last), last + 1)

    def title(self, text: str) -> Iterator[str]:
        for line in textwrap.wrap(text, int((self.right - MARGIN) / (0.65 * LARGE))):
            self.y += 20
            yield svg_text(line, MARGIN, self.y, GRAPH["title"], f'font-size="{LARGE}" font-weight="bold"')

    def legend(self) -> Iterator[str]:
        """Boxes with what they stand for, on one line or more."""
        used = {each.action.kind for row in self.rows for each in row}
        entries = [
            (*FILLS[kind], f"{kind.value} {word}") for kind, word in self.words.kinds.items() if kind in used
        ]
        x = float(MARGIN)
        self.y += 12
        for fill, line, word in [*entries, (FRAME["faint"], FRAME["rule"], self.words.idle)]:
            wide = 26 + text_width(word, FONT)
            if x + wide > self.right and x > MARGIN:
                x, self.y = float(MARGIN), self.y + 18
            yield svg_box(x, self.y, 12, 12, fill, line)
            yield svg_text(word, x + 17, self.y + 10, GRAPH["legend"])
            x += wide
        self.y += 20

    def band(self, start: int) -> Iterator[str]:
        """The axis and all stages of one stretch of time."""
        stop = min(start + self.length, self.makespan)
        yield from self._axis(start, stop)
        for stage in range(len(self.rows)):
            yield svg_text(self.words.stage.format(stage), MARGIN, self.y + 17, GRAPH["legend"])
            wide = (stop - start) * self.scale
            yield svg_box(self.left, self.y, wide, ROW - GAP, FRAME["faint"], FRAME["faint"])
            for each in self._in_band.get((start // self.length, stage), ()):
                yield self._action(each, start, stop)
            self.y += ROW
        self.y += 10

    def _axis(self, start: int, stop: float) -> Iterator[str]:
        colour, size = GRAPH["source-line"], f'font-size="{SMALL}"'
        step = TICK * math.ceil(30 / (TICK * self.scale))
        yield svg_text(self.words.time, MARGIN, self.y + 14, colour, size)
        for tick in range(math.ceil(start / step) * step, math.ceil(stop), step):
            x = self.left + (tick - start) * self.scale
            yield f'<path d="M{x:.1f} {self.y + 16:g} v4" stroke="{colour}"/>'
            yield svg_text(str(tick), x + 2, self.y + 14, colour, size)
        self.y += AXIS

    def _action(self, each: TimedAction, start: float, stop: float) -> str:
        fill, line = FILLS[each.action.kind]
        name = str(each.action)
        if each.end == each.start:  # a mark at the end of the action before it
            x = self.left + (each.end - start) * self.scale - 5
            return f"<g><title>{name}</title>{svg_box(x, self.y + 2, 4, ROW - GAP - 4, fill, line)}</g>"
        begin, end = max(each.start, start), min(each.end, stop)
        x, wide = self.left + (begin - start) * self.scale, (end - begin) * self.scale
        parts = [
            f"<title>{name}: {each.start:g} to {each.end:g}</title>",
            svg_box(x + 0.5, self.y + 0.5, max(wide - 1, 0.5), ROW - GAP - 1, fill, line),
        ]
        shown = name if begin == each.start else "…"  # the rest of an action that is folded
        if text_width(shown, SMALL) + 2 <= wide:
            middle = f'font-size="{SMALL}" text-anchor="middle"'
            parts.append(svg_text(shown, x + wide / 2, self.y + 16, GRAPH["title"], middle))
        return f"<g>{''.join(parts)}</g>"

    def notes(self, lines: Sequence[str]) -> Iterator[str]:
        for note in lines:
            for line in textwrap.wrap(note, int((self.right - MARGIN) / (0.51 * FONT))):
                self.y += 17
                yield svg_text(line, MARGIN, self.y, GRAPH["title"])
