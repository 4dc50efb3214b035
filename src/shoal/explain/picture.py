"""Pictures of rows with blocks, as text and as SVG: what each process holds, one step in time, tables of numbers.

Does not load torch: callers turn their numbers into `Block`s.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product

from shoal.config.mesh import AXES
from shoal.explain.names import Row
from shoal.report.svg import COLOURS, FRAME, GRAPH, LARGE, SMALL, for_file, svg_box, svg_of, svg_text

CELLS = 16
"""Parts that a bar of weights is drawn with; a layer has LAYER of them."""
LAYER = 4
MOST_ROWS, MOST_STAGES = 8, 4
"""Processes, and stages of a step in time, that are drawn: so many fit 80 columns."""
TENSORS = ("weights", "gradients", "optimizer state")


@dataclass(frozen=True)
class Look:
    """How one kind of block looks."""

    meaning: str
    """Its word in the legend; empty: it needs none."""
    fill: str = ""
    """The character of an unlabelled block."""
    paint: str = ""
    """The colour on a terminal."""
    colour: str = FRAME["paper"]
    line: str = FRAME["paper"]


LOOKS: Mapping[str, Look] = {
    "F": Look("forward", "─", "blue", GRAPH["forward"], GRAPH["forward-line"]),
    "B": Look("backward", "─", "yellow", GRAPH["backward"], GRAPH["backward-line"]),
    "U": Look("update", "─", "magenta", COLOURS["indigo"], COLOURS["indigo"]),
    "s": Look("sends or receives", "─", "green", GRAPH["result"], GRAPH["result-line"]),
    "w": Look("waits for the others", "─", "", FRAME["faint"], FRAME["rule"]),
    "·": Look("idle", "· ", "", FRAME["faint"], FRAME["faint"]),
    "own": Look("in its own memory", "█", "", COLOURS["blue"], COLOURS["blue"]),
    "mapped": Look("in memory that all workers map", "▒", "", GRAPH["forward"], GRAPH["forward-line"]),
    "elsewhere": Look("elsewhere", "·", "", FRAME["faint"], FRAME["faint"]),
    "number": Look(""),
    "kept": Look("", " ", "green", GRAPH["result"], GRAPH["result-line"]),
    "bad": Look("", " ", "yellow", GRAPH["backward"], GRAPH["backward-line"]),
    "": Look("", " "),
}
Block = tuple[str, int, str]
"""The name of a look, a width in characters, and a label."""
Paint = Callable[[str, str], str]
"""Colours a text on a terminal, given the name of a colour."""


@dataclass(frozen=True)
class Picture:
    """Rows of blocks, each row with a label before it."""

    title: str
    rows: Sequence[tuple[str, Sequence[Block]]]

    @property
    def margin(self) -> int:
        """The width of the labels, in characters."""
        return max(len(label) for label, _ in self.rows) + 2

    def legend(self) -> Iterator[tuple[str, Look]]:
        """The looks in use that have a meaning, in order."""
        used = {block[0] for _, blocks in self.rows for block in blocks}
        return ((name, look) for name, look in LOOKS.items() if name in used and look.meaning)


def as_lines(picture: Picture, paint: Paint = lambda colour, words: words) -> list[str]:
    """The picture as text.

    >>> print("\\n".join(as_lines(Picture("A step", [("computes", [("F", 4, "F"), ("·", 4, "")])]))))
    A step
      computes  F───· ·
    <BLANKLINE>
      F forward, · idle
    """
    lines = [picture.title]
    for label, blocks in picture.rows:
        cells = "".join(_painted(block, paint) for block in blocks).rstrip()
        lines.append(f"  {label:{picture.margin}}{cells}".rstrip())
    words = [f"{name if len(name) == 1 else look.fill} {look.meaning}" for name, look in picture.legend()]
    return [*lines, *(["", "  " + ", ".join(words)] if words else [])]


def _painted(block: Block, paint: Paint) -> str:
    name, width, label = block
    look = LOOKS[name]
    words = f"{label:>{width}}" if look.fill in ("", " ") else (label + look.fill * width)[:width]
    return paint(look.paint, words) if look.paint else words


WIDE, HIGH = 8.5, 22
"""Pixels of a character and of a row."""
INK = FRAME["ink"]


def as_svg(title: str, pictures: Sequence[Picture]) -> str:
    """The pictures below each other, as an SVG file."""
    y, parts = 26.0, [svg_text(title, 10, 22, INK, f'font-size="{LARGE}" font-weight="bold"')]
    width = max(10 + WIDE * len(title) * 1.3, 400.0)
    for picture in pictures:
        left = 10 + WIDE * picture.margin
        y += 24
        parts.append(svg_text(picture.title, 10, y, INK, 'font-weight="bold"'))
        y += 8
        for label, blocks in picture.rows:
            parts.append(svg_text(label, 10, y + 15, INK, f'font-size="{SMALL}"'))
            x = left
            for block in blocks:
                parts += _drawn(block, x, y)
                x += WIDE * block[1]
            width, y = max(width, x + 10), y + HIGH
        x, y = 10.0, y + 8
        for _, look in picture.legend():
            parts.append(svg_box(x, y, 12, 12, look.colour, look.line))
            parts.append(svg_text(look.meaning, x + 17, y + 10, INK, f'font-size="{SMALL}"'))
            x += 34 + 6.2 * len(look.meaning)
        width, y = max(width, x), y + 20
    return for_file(svg_of(width, y, parts))


def _drawn(block: Block, x: float, y: float) -> Iterator[str]:
    name, characters, label = block
    wide = WIDE * characters
    look = LOOKS[name]
    if look.meaning or look.paint:
        yield svg_box(x + 0.5, y + 1, wide - 1, HIGH - 3, look.colour, look.line)
    if label.strip():
        centred = f'font-size="{SMALL}" text-anchor="middle"'
        yield svg_text(label, x + wide / 2, y + 15, FRAME["paper"] if name == "U" else INK, centred)


def step_in_time(row: Row, stages: int) -> Picture:
    """One step: who computes and sends when."""
    if row.schedule:
        from shoal.explain.pipeline import explain_schedule

        rows: list[tuple[str, list[Block]]] = []
        stages = min(stages, MOST_STAGES)
        timed = explain_schedule(row.schedule, stages, stages).timeline
        for stage, actions in enumerate(timed.rows):
            blocks, now = list[Block](), 0.0
            for each in actions:
                if each.start > now:
                    blocks.append(("·", round(2 * (each.start - now)), ""))
                blocks.append((each.action.kind.value, round(2 * (each.end - each.start)), str(each.action)))
                now = each.end
            idle = round(2 * (timed.makespan - now))
            rows.append((f"stage {stage}", [*blocks, *([("·", idle, "")] if idle else [])]))
        return Picture(
            f"A step in time, {row.schedule} with {stages} stages and {stages} micro-batches", rows
        )
    return Picture(
        "A step in time, not to scale" if len(row.time) < 3 else "Steps in time, not to scale",
        [
            (who, [(key, 2 * len(list(units)), "" if key == "·" else key) for key, units in groupby(letters)])
            for who, letters in row.time.items()
        ],
    )


def holdings(row: Row, meshes: Sequence[Mapping[str, int]], workers: int) -> Picture:
    """What each process holds of weights, gradients and optimizer state, in each case."""
    heads = [block for name in TENSORS for block in (("", CELLS, f"{name:<{CELLS}}"), ("", 2, ""))]
    rows: list[tuple[str, Sequence[Block]]] = []
    for case, axes in zip(row.cases, meshes, strict=True):
        rows += [*([("", [])] if rows else []), (case.name, heads)]
        for group, ways in case.holds.items():
            rows += _group(group, ways, axes, workers, "rank 0" in case.holds)
    more = f" (the first {MOST_ROWS} of {workers})" if workers > MOST_ROWS else ""
    return Picture(f"What each process holds{more}", rows)


def _group(
    group: str, ways: Sequence[str], axes: Mapping[str, int], workers: int, has_driver: bool
) -> Iterator[tuple[str, Sequence[Block]]]:
    """The rows of one group of processes: a single one, or the workers, without rank 0 if it is a group by itself."""
    count = 1 if group in ("rank 0", "server") else workers - has_driver
    sizes = [axes.get(axis, 1) for axis in AXES] if count == workers else [count, 1, 1]
    places = product(*(range(size) for size in sizes))
    for number, place in zip(range(min(count, MOST_ROWS)), places, strict=False):
        bars = [(*_bar(way, place, sizes), ("", 2, "")) for way in ways]
        label = group if group in ("rank 0", "server") else f"{group} {number + has_driver}"
        yield label, [block for bar in bars for block in bar]


def _bar(way: str, place: Sequence[int], sizes: Sequence[int]) -> Iterator[Block]:
    """One tensor of a process: stages are stretches of it, tensor parallelism divides layers, slices what remains."""
    (index, stage, part), (copies, stages, parts) = place, sizes
    mine = [
        cell
        for cell in range(CELLS)
        if way != "none" and cell * stages // CELLS == stage and cell % LAYER * parts // LAYER == part
    ]
    start, stop = (len(mine) * turn // copies for turn in (index, index + 1))
    owned = {*(mine if way == "whole" else mine[start:stop])}
    seen = {*mine} if way == "mapped" else set[int]()
    looks = ["own" if cell in owned else "mapped" if cell in seen else "elsewhere" for cell in range(CELLS)]
    for look, cells in groupby(looks):
        yield look, len(list(cells)), ""
