"""Horizontal bars made of parts: what took how long, one bar for each way of doing it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shoal.labs.words import Words
from shoal.report.figures import COLOURS, Drawing, legend_below, painted
from shoal.report.findings import Measured

ROW_IN, EDGES_IN = 0.27, 1.35
"""Height of one bar's row; of titles, axis and legend together."""


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


def time_parts(words: Words) -> list[Part]:
    """The parts of a step's time: own work, waiting, moving."""
    return [
        Part(words("figure.own"), "blue"),
        Part(words("figure.wait"), "orange", "...."),
        Part(words("figure.move"), "vermilion", "////"),
    ]


def measured_bar(label: str, parts: Sequence[Measured], whole: Measured) -> Bar:
    """A bar of medians. The medians of the parts do not add up to the median of the whole, so they are scaled to it."""
    total = sum(part.value for part in parts)
    scale = whole.value / total if total else 0.0
    return Bar(label, [part.value * scale for part in parts], whole.spread)


def draw_bars(
    panels: Sequence[BarPanel], parts: Sequence[Part], *, font: str | None = None, width_in: float = 0
) -> Drawing:
    """Panels side by side; all have the same rows, each has a scale of its own."""

    def paint(figure: Any) -> None:
        axes: Any = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, panel in zip(axes, panels, strict=True):
            _draw_panel(axis, panel, parts)
        rows = panels[0].bars
        axes[0].set_yticks(range(len(rows)), [bar.label for bar in rows])
        axes[0].invert_yaxis()
        legend_below(figure, axes[0])

    rows = max(len(panel.bars) for panel in panels)
    return painted(paint, width_in or 2.3 * len(panels) + 2.2, ROW_IN * rows + EDGES_IN, font)


def _draw_panel(axis: Any, panel: BarPanel, parts: Sequence[Part]) -> None:
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
            edgecolor="white",
            linewidth=0.6,
        )
        lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
    if any(bar.spread for bar in bars):
        spreads = [bar.spread for bar in bars]
        axis.errorbar(lefts, places, xerr=spreads, fmt="none", ecolor="#333333", elinewidth=1, capsize=2)
    axis.set_title(panel.title)
    axis.set_xlabel(panel.x_label)
    axis.set_xlim(left=0)
    axis.grid(True, axis="x", color="#d8dce0", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0)
