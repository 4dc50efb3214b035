"""Curves over epochs in a grid of panels: one scale for a row, one legend for all."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from shoal.report.figures import COLOURS, DASHES, Drawing, Line, painted

ROW_IN, COLUMN_IN, LEGEND_ROW_IN = 2.5, 4.2, 0.24
LEGEND_COLUMNS = 4
REFERENCE: dict[str, Any] = {"color": "#b4bac1", "linewidth": 6.0, "solid_capstyle": "round"}
"""What all others are compared with is a wide band, so that a curve which lies on it can be seen."""


Scale = Literal["linear", "logarithmic", "from zero"]


@dataclass(frozen=True)
class EpochPanel:
    """One pair of axes; the label of the upright one carries the unit."""

    title: str
    y_label: str
    lines: Sequence[Line]
    reference: Line | None = None
    scale: Scale = "linear"


def draw_epochs(rows: Sequence[Sequence[EpochPanel]], x_label: str, font: str | None = None) -> Drawing:
    """The grid: panels of a row share their scale, those of a column their epochs."""

    def paint(figure: Any) -> None:
        axes: Any = figure.subplots(len(rows), len(rows[0]), sharex=True, sharey="row", squeeze=False)
        for row_axes, panels in zip(axes, rows, strict=True):
            for column, (axis, panel) in enumerate(zip(row_axes, panels, strict=True)):
                _draw_panel(axis, panel)
                if column == 0:
                    axis.set_ylabel(panel.y_label)
        for axis in axes[-1]:
            axis.set_xlabel(x_label)
        figure.legend(
            *_unique_labels(axes.flat), loc="outside lower center", ncols=LEGEND_COLUMNS, frameon=False
        )

    labels = {line.style.label for row in rows for panel in row for line in panel.lines}
    legend_rows = -(-(len(labels) + 1) // LEGEND_COLUMNS)
    height_in = ROW_IN * len(rows) + LEGEND_ROW_IN * legend_rows + 0.4
    return painted(paint, COLUMN_IN * len(rows[0]) + 0.5, height_in, font)


def _draw_panel(axis: Any, panel: EpochPanel) -> None:
    if panel.reference is not None:
        reference = panel.reference
        axis.plot(reference.x, reference.y, label=reference.style.label, **REFERENCE)
    for line in panel.lines:
        style, colour = line.style, COLOURS[line.style.colour]
        if line.low is not None and line.high is not None:
            axis.fill_between(line.x, line.low, line.high, color=colour, alpha=0.08, linewidth=0)
        axis.plot(
            line.x,
            line.y,
            color=colour,
            linestyle=DASHES[style.dash],
            linewidth=1.5,
            marker=style.marker,
            markersize=4,
            label=style.label,
        )
    if panel.scale == "logarithmic":
        _decimal_ticks(axis)
    if panel.scale == "from zero":
        axis.set_ylim(bottom=0)
    axis.set_title(panel.title)
    axis.set_xticks(np.arange(1, max(len(line.x) for line in panel.lines) + 1))
    axis.grid(True, color="#d8dce0", linewidth=0.6)
    axis.set_axisbelow(True)


def _unique_labels(axes: Any) -> tuple[list[Any], list[str]]:
    found: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        found |= {label: handle for label, handle in zip(labels, handles, strict=True) if label not in found}
    return list(found.values()), list(found)


def _decimal_ticks(axis: Any) -> None:
    """A logarithmic scale with 0.1, 0.2, 0.5 rather than powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
