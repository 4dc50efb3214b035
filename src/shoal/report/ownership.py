"""Who owns what: a division of a data set among workers, as a table and as a figure.

The figure has a row for each worker and three columns: how many samples it has, where in the data set they are, and how
many of each label. Shades are of one colour, so a copy in grey says the same.
"""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from shoal.report.canvas import in_our_style, saved
from shoal.report.svg import COLOURS, inverted_for_file

Indices = NDArray[np.int64]
MOST_ROWS = 40
"""Workers that a table shows; JSON has them all."""
MOST_NUMBERS = 400
"""Cells of the label map that still have room for a number each."""
STRETCHES = 120
"""Columns of the map of the data set, in its stored order."""
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, eq=False)
class Ownership:
    """What is known of a division. Arrays have a row per worker."""

    title: str
    num_samples: int
    """Samples of the data set."""
    lists: Sequence[Indices]
    """The samples that each worker goes through in an epoch, by rank."""
    labels: Sequence[int]
    """The labels there are; none if the samples have no classes."""
    histogram: Indices
    """[workers, labels]: how many samples of each label each worker has."""
    whole: Indices
    """[labels]: how many the data set has."""
    skew: Sequence[float]
    """The part of each worker's samples that would need another label to have the proportions of the whole."""
    coverage: float
    """The part of the data set that some worker has."""
    overlap: float
    """The part that more than one has."""

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return len(self.lists)


def as_text(owned: Ownership, width: int) -> str:
    """A table that fits the width: a number for each label if there is room, else a bar, else the skew alone."""
    tables = list(_tables(owned))
    lines = next((lines for lines in tables if max(map(len, lines)) <= width), tables[-1])
    if owned.workers > MOST_ROWS:
        lines.insert(MOST_ROWS + 1, f"… and {owned.workers - MOST_ROWS:,} more")
    notes = _notes(owned)
    if lines[0].endswith("labels"):
        notes.append("labels: how much of each of them the worker has (█: all of it, a gap: none)")
    return "\n".join([owned.title, "", *lines, "", *(textwrap.fill(note, max(width, 40)) for note in notes)])


def _tables(owned: Ownership) -> Iterator[list[str]]:
    """The lines of the table: the header, the workers, the whole; the widest first."""
    shown = range(min(owned.workers, MOST_ROWS))
    rows = [
        ["worker", "samples", "of all", *(["skew", "label"] if owned.labels else []), *map(str, owned.labels)]
    ]
    rows += [_row(owned, rank) for rank in shown]
    if owned.labels:
        rows.append(["whole", f"{owned.num_samples:,}", "", "", "", *(f"{count:,}" for count in owned.whole)])
        yield _aligned(rows)
        narrow = _aligned([row[:4] for row in rows])
        bars = ["labels", *(_bars(owned.histogram[rank] / owned.whole) for rank in shown), ""]
        yield [f"{line}   {bar}".rstrip() for line, bar in zip(narrow, bars, strict=True)]
        rows = [row[:4] for row in rows]
    yield _aligned(rows)


def _row(owned: Ownership, rank: int) -> list[str]:
    count = len(owned.lists[rank])
    row = [str(rank), f"{count:,}", f"{100 * count / owned.num_samples:.1f} %"]
    if not owned.labels:
        return row
    counts = [f"{number:,}" if number else "·" for number in owned.histogram[rank]]
    return [*row, f"{owned.skew[rank]:.2f}" if count else "–", "", *counts]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _bars(parts: NDArray[np.float64]) -> str:
    """The part of each label that a worker has, a letter each.

    >>> _bars(np.array([0.0, 0.1, 0.5, 1.0]))
    ' ▂▅█'
    """
    levels = np.rint(parts.clip(max=1) * (len(BARS) - 1)).astype(int)
    return "".join(BARS[level] if part > 0 else " " for level, part in zip(levels, parts, strict=True))


def _notes(owned: Ownership) -> list[str]:
    notes = [
        f"coverage {100 * owned.coverage:5.1f} %   of the samples are seen by some worker",
        f"overlap  {100 * owned.overlap:5.1f} %   are seen by more than one",
    ]
    if owned.labels:
        notes.append(
            "skew: the part of a worker's samples that would need another label to be like the whole (0: alike)"
        )
    return notes


def draw_ownership(owned: Ownership, kind: Literal["png", "svg", "pdf"]) -> bytes:
    """The figure as a file of this kind; the same division gives the same bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    height_in = float(np.clip(1.5 + 0.34 * owned.workers, 2.6, 14))
    ratios = [1.0, 1.7, 2.2] if owned.labels else [1.0, 1.7]
    with in_our_style(None):
        figure = Figure(figsize=(2.3 * sum(ratios), height_in), layout="constrained")
        FigureCanvasAgg(figure)
        axes: Any = figure.subplots(1, len(ratios), sharey=True, squeeze=False, width_ratios=ratios)[0]
        figure.suptitle(owned.title)
        _draw_counts(axes[0], owned)
        _draw_places(axes[1], owned)
        if owned.labels:
            _draw_labels(axes[2], owned)
        metadata = {"png": None, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
        picture = saved(figure, kind, dpi=200, metadata=metadata)
        return inverted_for_file(picture.decode()).encode() if kind == "svg" else picture


def _draw_counts(axis: Any, owned: Ownership) -> None:
    counts = [len(own) for own in owned.lists]
    bars = axis.barh(range(owned.workers), counts, height=0.72, color=COLOURS["blue"])
    if owned.workers <= MOST_ROWS:
        axis.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=7.5)
    axis.set_title("Samples of each worker")
    axis.set_xlabel("samples")
    axis.set_ylabel("worker")
    axis.set_ylim(owned.workers - 0.5, -0.5)  # worker 0 on top
    axis.set_xlim(0, 1.28 * max(*counts, 1))  # room for the numbers
    step = max(1, -(-owned.workers // MOST_ROWS))
    axis.set_yticks(range(0, owned.workers, step))
    axis.locator_params(axis="x", nbins=3)
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.grid(True, axis="x", color="#d8dce0", linewidth=0.6)
    axis.set_axisbelow(True)


def _draw_places(axis: Any, owned: Ownership) -> None:
    """Each worker's part of every stretch of the data set, in stored order, from pale (none) to strong (all)."""
    edges = np.linspace(0, owned.num_samples, min(STRETCHES, owned.num_samples) + 1)
    parts = np.stack([np.histogram(own, edges)[0] for own in owned.lists]) / np.diff(edges).clip(min=1)
    extent = (0, owned.num_samples, owned.workers - 0.5, -0.5)
    axis.imshow(parts, cmap="Blues", vmin=0, vmax=1, aspect="auto", extent=extent, interpolation="nearest")
    axis.set_title("Where they are (stronger colour: more)")
    axis.set_xlabel("place in the data set (sample number)")
    axis.locator_params(axis="x", nbins=5)
    axis.xaxis.set_major_formatter("{x:,.0f}")
    _rule_rows(axis, owned.workers)


def _draw_labels(axis: Any, owned: Ownership) -> None:
    """The part of each label that each worker has, as a shade, and as a number where there is room."""
    parts = owned.histogram / owned.whole
    num_labels = len(owned.labels)
    axis.imshow(parts, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axis.set_title("Samples of each label (stronger colour: more)")
    axis.set_xlabel("label")
    step = max(1, -(-num_labels // 25))
    axis.set_xticks(range(0, num_labels, step), [str(label) for label in owned.labels[::step]])
    if parts.size <= MOST_NUMBERS and num_labels <= 20:
        for (rank, column), count in np.ndenumerate(owned.histogram):
            if count:
                colour = "white" if parts[rank, column] > 0.55 else "#1b1f24"
                axis.text(column, rank, f"{count}", ha="center", va="center", color=colour, fontsize=7.5)
    _rule_rows(axis, owned.workers)


def _rule_rows(axis: Any, workers: int) -> None:
    """A thin line between workers, so that neighbours of one shade can be distinguished."""
    if workers <= MOST_ROWS:
        axis.hlines(np.arange(workers - 1) + 0.5, *axis.get_xlim(), color="#aeb6bf", linewidth=0.5)
    axis.tick_params(left=False)  # the first column has the workers' names
    for side in axis.spines.values():
        side.set_visible(True)
