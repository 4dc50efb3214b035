"""The timeline of a run as text: a row of letters for each worker, and below it the worker on the critical path."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from shoal.report.plain_tables import width
from shoal.report.timeline import PARTS, Interval, Part, Row, StepTimeline, Timeline
from shoal.words import Words

LETTERS: dict[Part, str] = {
    "data": "d", "compute": "#", "encode": "e", "move": "=", "wait": ".", "idle": " "
}  # fmt: skip
"""Of ASCII, so that every terminal has them."""
PAINTS: dict[Part, str] = {
    "data": "cyan", "compute": "blue", "encode": "green", "move": "magenta", "wait": "yellow"
}  # fmt: skip
MOST_ROWS = 32
"""With more workers than this, those that are longest on the critical path have a row."""

Paint = Callable[[str, str], str]
"""Colours a text on a terminal, given the name of a colour."""


def as_lines(
    timeline: Timeline, words: Words, columns: int, paint: Paint, wrap: Callable[[str], str]
) -> list[str]:
    """Both steps, each with its critical path in words, and the legend."""
    lines: list[str] = []
    for name, step in timeline.steps.items():
        drawn = _step_lines(step, words, columns, paint)
        lines += [step_title(name, step, words), *drawn, wrap(path_sentence(step, words)), ""]
    legend = [
        f"{LETTERS[part]} {words(f'kind.{part}')}" for part in used_parts(timeline.steps) if part != "idle"
    ]
    sentences = [words("timeline.legend", letters=words.listed(legend))]
    sentences += [words("timeline.path_legend")] * (len(timeline.median.rows) > 1)
    sentences += kept_sentences(timeline, words)
    return [*lines, *map(wrap, sentences)]


def used_parts(steps: Mapping[str, StepTimeline]) -> list[Part]:
    """The parts that the steps have, in the order of a legend."""
    rows = [row for step in steps.values() for row in step.rows]
    return [part for part in PARTS if any(row.shares_ns[part] for row in rows)]


def step_title(name: str, step: StepTimeline, words: Words) -> str:
    """Which step it is, and how long it took."""
    return words(f"timeline.{name}", step=f"{step.step:,}", ms=milliseconds(step.end_ns - step.start_ns))


def path_sentence(step: StepTimeline, words: Words) -> str:
    """What the critical path consists of, and which workers are on it for how long."""
    total = sum(step.path_ns.values()) or 1
    parts = {words(f"kind.{part}"): ns for part, ns in step.path_ns.items()}
    ranks = {rank_name(row.rank, words): step.on_path_ns(row.rank) for row in step.rows}

    def listed(shares: dict[str, int]) -> str:
        largest = sorted(shares.items(), key=lambda share: -share[1])
        listed = {name: f"{100 * ns / total:.0f} %" for name, ns in largest if ns >= total / 200}
        return words.listed(
            [words("timeline.share", name=name, share=share) for name, share in listed.items()]
        )

    if len(step.rows) == 1:
        return words("timeline.one_path", parts=listed(parts))
    return words("timeline.path", parts=listed(parts), ranks=listed(ranks))


def kept_sentences(timeline: Timeline, words: Words) -> Iterator[str]:
    """From how many steps the two were chosen, and whether a slower one could not be shown."""
    yield words("timeline.kept", kept=f"{timeline.kept:,}")
    step, seconds = timeline.slowest_of_all
    longest_s = max(row.seconds for row in timeline.slowest.rows)
    if seconds > 1.1 * longest_s:
        yield words("timeline.slower", step=f"{step:,}", ms=milliseconds(round(seconds * 1e9)))


def rank_name(rank: int, words: Words) -> str:
    """A worker, as other figures call it."""
    return words("timeline.rank", rank=rank)


def milliseconds(ns: int) -> str:
    """Milliseconds with three digits or more.

    >>> milliseconds(1_234_567), milliseconds(29_000_000), milliseconds(2_500_000_000)
    ('1.23', '29.0', '2,500')
    """
    ms = ns / 1e6
    return f"{ms:,.{2 if ms < 9.995 else 1 if ms < 99.95 else 0}f}"


def shown_rows(step: StepTimeline, most: int = MOST_ROWS) -> list[Row]:
    """The rows to draw, by rank: of many workers, those that are longest on the critical path."""
    longest = sorted(step.rows, key=lambda row: -step.on_path_ns(row.rank))[:most]
    return [row for row in step.rows if row in longest]


def _step_lines(step: StepTimeline, words: Words, columns: int, paint: Paint) -> Iterator[str]:
    rows, start_ns = shown_rows(step), step.start_ns
    labels = [rank_name(row.rank, words) for row in rows]
    path_label = words("timeline.path_row") if len(rows) > 1 else ""
    margin = max(map(width, [*labels, path_label])) + 2
    cells = columns - margin - 12
    cell_ns = max((step.end_ns - start_ns) / cells, 1.0)

    def line(label: str, content: str, end: str = "") -> str:
        return f"  {label}{' ' * (margin - width(label))}{content}{end}".rstrip()

    for label, row in zip(labels, rows, strict=True):
        parts = _in_cells(row.intervals, start_ns, cell_ns, cells)
        painted = [_stretch(part, len([*same]), paint) for part, same in groupby(parts)]
        own_ns = row.intervals[-1].end_ns - row.intervals[0].start_ns
        yield line(label, "".join(painted), f"{milliseconds(own_ns):>7} ms")
    if hidden := len(step.rows) - len(rows):
        yield line("", words("timeline.hidden", count=hidden))
    if path_label:
        path = [Interval(part.start_ns, part.end_ns, "idle", f"{part.rank % 10}") for part in step.path]
        names = _in_cells(path, start_ns, cell_ns, cells, of_name=True)
        yield line(path_label, "".join(name or " " for name in names))


def _in_cells(
    intervals: Sequence[Interval], start_ns: int, cell_ns: float, cells: int, of_name: bool = False
) -> list[str]:
    """The part, or the name, that takes most of each cell; empty where there is nothing."""
    time_ns: list[dict[str, float]] = [{} for _ in range(cells)]
    for each in intervals:
        begin, end = (each.start_ns - start_ns) / cell_ns, (each.end_ns - start_ns) / cell_ns
        for place in range(max(int(begin), 0), min(int(end) + 1, cells)):
            key = each.name if of_name else each.part
            overlap = min(end, place + 1) - max(begin, place)
            time_ns[place][key] = time_ns[place].get(key, 0.0) + overlap
    return [max(found, key=lambda key: found[key]) if found else "" for found in time_ns]


def _stretch(part: str, length: int, paint: Paint) -> str:
    letter = next((letter for name, letter in LETTERS.items() if name == part), " ")
    colour = next((colour for name, colour in PAINTS.items() if name == part), "")
    return paint(colour, letter * length) if colour else letter * length
