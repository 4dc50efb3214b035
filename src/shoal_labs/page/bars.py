"""Horizontal bars made of parts: what took how long, one bar for each way of doing it."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.kit.figures import (
    COLOURS,
    FRAME,
    PAGE_IN,
    PHONE_IN,
    Drawing,
    axes_of,
    legend_below,
    legend_in,
    painted,
    rows_of,
)
from shoal.kit.findings import Measured
from shoal_labs.words import Words

ROW_IN, TWO_LINES_IN, EDGES_IN = 0.27, 0.36, 0.95
"""Height of one bar's row, with a name of one line or of two; of title and axis together."""
PHONE_LETTERS = 20
"""A longer name takes two lines on a phone."""


@dataclass(frozen=True)
class Part:
    """One part of every bar; a hatch distinguishes it from its neighbour in a grey copy."""

    label: str
    colour: str
    hatch: str = ""


@dataclass(frozen=True)
class Bar:
    """A bar: its parts in order, and the spread of the whole where it is known."""

    label: str
    parts: Sequence[float]
    spread: float = 0.0


@dataclass(frozen=True)
class BarPanel:
    """Bars on one scale. A bar without a label leaves a gap between groups."""

    title: str
    x_label: str
    bars: Sequence[Bar]


GAP = Bar("", ())


@dataclass(frozen=True)
class RatioPanel:
    """How many times as fast, or as long: points beside the rows of bars, on a logarithmic scale with a line at 1."""

    title: str
    x_label: str
    ratios: Mapping[str, Sequence[float | None]]
    """By what the ratio is to: one for each row, none in a gap."""


def time_parts(words: Words) -> list[Part]:
    """The parts of a step's time: own work, waiting, moving."""
    return [
        Part(words("figure.own"), "blue"),
        Part(words("figure.wait"), "orange", "||||"),
        Part(words("figure.move"), "vermilion", "////"),
    ]


def measured_bar(label: str, parts: Sequence[Measured], whole: Measured) -> Bar:
    """A bar of medians. The medians of the parts do not add up to the median of the whole, so they are scaled to it."""
    total = sum(part.value for part in parts)
    scale = whole.value / total if total else 0.0
    return Bar(label, [part.value * scale for part in parts], whole.spread)


SCALE_LIMIT = 2.0
"""The end of a scale, as a multiple of the longest bar: the spread of a badly disturbed one leaves the panel."""


def draw_bars(
    panels: Sequence[BarPanel],
    parts: Sequence[Part],
    ratios: Sequence[RatioPanel] = (),
    *,
    font: str | None = None,
    columns: int = 0,
    width_in: float = PAGE_IN,
) -> Drawing:
    """Panels side by side unless `columns` are given, then those of ratios; all have the same rows.

    Each panel of bars has a scale of its own.
    """
    rows, count = panels[0].bars, len(panels) + len(ratios)

    def paint(figure: Any, columns: int) -> None:
        axes = axes_of(figure, count, columns)
        for axis, panel in zip(axes, panels, strict=False):
            draw_panel(axis, panel, parts)
        for axis, panel in zip(axes[len(panels) :], ratios, strict=True):
            draw_ratios(axis, panel)
        for position, axis in enumerate(axes):
            names = [_name(bar.label, figure.get_figwidth()) for bar in rows]
            axis.set_yticks(range(len(rows)), names if position % columns == 0 else [""] * len(rows))
            axis.set_ylim(len(rows) - 0.4, -0.6)
        legend_below(figure, *axes)

    def height(columns: int, width_in: float) -> float:
        labels = [*(part.label for part in parts), *(ratios[0].ratios if ratios else ())]
        row_in = TWO_LINES_IN if any("\n" in _name(bar.label, width_in) for bar in rows) else ROW_IN
        return rows_of(count, columns) * (row_in * len(rows) + EDGES_IN) + legend_in(labels, width_in)

    return painted(paint, height, columns or len(panels), width_in, font)


def _name(label: str, width_in: float) -> str:
    return label if width_in > PHONE_IN else textwrap.fill(label, PHONE_LETTERS)


def draw_panel(axis: Any, panel: BarPanel, parts: Sequence[Part]) -> None:
    """Draw the bars of one panel."""
    places = [place for place, bar in enumerate(panel.bars) if bar.parts]
    bars = [bar for bar in panel.bars if bar.parts]
    lefts = [0.0] * len(bars)
    for number, part in enumerate(parts):
        widths = [bar.parts[number] for bar in bars]
        axis.barh(
            places,
            widths,
            left=lefts,
            height=0.72,
            label=part.label,
            color=COLOURS[part.colour],
            hatch=part.hatch,
            edgecolor=FRAME["paper"],
            linewidth=0.6,
        )
        lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
    if any(bar.spread for bar in bars):
        spreads = [bar.spread for bar in bars]
        axis.errorbar(lefts, places, xerr=spreads, fmt="none", ecolor=FRAME["ink"], elinewidth=1, capsize=2)
    axis.set_title(panel.title)
    axis.set_xlabel(panel.x_label)
    longest, end = max(lefts, default=0.0), axis.get_xlim()[1]
    axis.set_xlim(0, min(end, SCALE_LIMIT * longest) if longest else end)
    axis.grid(True, axis="x", color=FRAME["grid"], linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0)


MARKERS = (("vermilion", "D"), ("blue", "o"))
RATIO_TICKS = [2 ** (step / 2) for step in range(-12, 13)]
MOST_TICKS = 7


def draw_ratios(axis: Any, panel: RatioPanel) -> None:
    """Draw the points of one panel: a scale by factors shows 1.4 times as fast and 1.4 times as slow equally far."""
    found = [1.0]
    for (label, ratios), (colour, marker) in zip(panel.ratios.items(), MARKERS, strict=False):
        places = [place for place, ratio in enumerate(ratios) if ratio]
        values = [ratio for ratio in ratios if ratio]
        axis.scatter(values, places, s=26, color=COLOURS[colour], marker=marker, label=label, zorder=3)
        found += values
    axis.axvline(1.0, color=FRAME["ink"], linewidth=1.2)
    low, high = min(*found, 0.75) / 1.1, max(*found, 1.5) * 1.1
    axis.set_xscale("log")
    axis.set_xlim(low, high)
    inside = [tick for tick in RATIO_TICKS if low <= tick <= high]
    ticks = (
        inside
        if len(inside) <= MOST_TICKS
        else [tick for tick in inside if round(math.log2(tick), 3) % 1 == 0]
    )
    axis.set_xticks(ticks, [f"{tick:.2g}" for tick in ticks])
    axis.set_xticks([], minor=True)
    axis.set_title(panel.title)
    axis.set_xlabel(panel.x_label)
    axis.grid(True, axis="x", color=FRAME["grid"], linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0)
