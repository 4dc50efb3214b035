"""Curves in panels, described as data.

Every curve has a colour, and a line style or marker of its own for copies in grey. Every axis has a label with its
unit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from shoal.report.canvas import (
    PAGE_IN,
    Drawing,
    Paint,
    axes_of,
    decimal_ticks,
    legend_below,
    legend_in,
    painted,
    painted_column,
    rows_of,
)
from shoal.report.finished_runs import Array
from shoal.report.svg import COLOURS, FRAME

SAME_TO_THE_EYE = 0.01
"""Curves whose values differ by less than this part everywhere cannot be distinguished in a figure."""
WIDER_PT = 2.2
FEW_PLACES = 4
"""So few places on a logarithmic axis are its ticks: the powers of ten are not among them."""
COLUMN_HEIGHT_IN = 2.1
"""Of a panel in a paper, without its legend."""
MOST_COLUMNS = 3
"""More panels than this are drawn in several rows."""
Dash = Literal["solid", "dashed", "dash-dotted"]
DASHES: dict[Dash, Any] = {"solid": "-", "dashed": (0, (5, 1.4)), "dash-dotted": (0, (6, 1.3, 1.3, 1.3))}
"""Gaps short enough that a rough curve stays one curve."""


@dataclass(frozen=True)
class Style:
    """How one thing looks in every panel."""

    label: str
    colour: str
    dash: Dash = "solid"
    marker: str = ""
    width: float = 1.8


@dataclass(frozen=True)
class Line:
    """A curve; a band where `low` and `high` are given; thin points behind it where `raw` is."""

    style: Style
    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None
    raw: Array | None = None


def seeds_line(style: Style, x: Array, values: Array, raw: Array | None = None) -> Line:
    """The mean over the rows of `values` (one for each seed), in a band from the lowest to the highest."""
    return Line(style, x, values.mean(axis=0), values.min(axis=0), values.max(axis=0), raw)


@dataclass(frozen=True)
class Mark:
    """A single point that is highlighted: a choice, or a value that is outside the scale."""

    style: Style
    x: float
    y: float | None
    """None: on the upper edge."""
    marker: str
    label: str = ""


@dataclass(frozen=True)
class Panel:
    """One pair of axes. Labels carry the units."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_x: bool = True
    log_y: bool = True
    marks: Sequence[Mark] = ()
    from_zero: bool = False
    """Whether a linear scale of y begins at zero."""
    band_alpha: float = 0.18
    """Opacity of bands: low where many curves overlap."""
    most_ticks: int | None = None
    """So many ticks of x at most, also between whole numbers; none: up to seven whole numbers, or powers of ten."""
    widens: bool = True
    """Whether a curve below one that coincides with it is wider, so that both can be seen."""


def draw(
    panels: Sequence[Panel], *, font: str | None = None, width_in: float = PAGE_IN, height_in: float = 3.4
) -> Drawing:
    """Panels with one scale for the loss and one legend below."""
    limits = _y_limits(panels)
    columns = len(panels) if len(panels) <= MOST_COLUMNS else 2
    return _draw_panels([(panel, limits) for panel in panels], columns, width_in, height_in, font)


def draw_grid(rows: Sequence[Sequence[Panel]], *, font: str | None = None) -> Drawing:
    """Rows of panels: one scale of y for each row, one legend for all."""
    panels = [(panel, _y_limits(row)) for row in rows for panel in row]
    return _draw_panels(panels, len(rows[0]), PAGE_IN, 2.6, font)


def draw_apart(panels: Sequence[Panel], *, font: str | None = None) -> Drawing:
    """Panels side by side of different quantities: each has its own scale of y and its own label."""
    scaled = [(panel, _y_limits([panel])) for panel in panels]
    return _draw_panels(scaled, len(panels), PAGE_IN, 2.8, font, labels_every_y=True)


def column_pdf(panel: Panel, *, font: str | None = None) -> bytes:
    """A panel as a figure of a paper: as wide as one of two columns, with letters of its size."""
    paint, height = _painting([(panel, _y_limits([panel]))], 1, COLUMN_HEIGHT_IN, labels_every_y=False)
    return painted_column(paint, height, font)


def _draw_panels(
    panels: Sequence[tuple[Panel, tuple[float, float]]],
    columns: int,
    width_in: float,
    height_in: float,
    font: str | None,
    labels_every_y: bool = False,
) -> Drawing:
    paint, height = _painting(panels, columns, height_in, labels_every_y)
    return painted(paint, height, columns, width_in, font)


def _painting(
    panels: Sequence[tuple[Panel, tuple[float, float]]], columns: int, height_in: float, labels_every_y: bool
) -> tuple[Paint, Callable[[int, float], float]]:
    """What paints the panels, and how high the figure is."""
    labels = {line.style.label for panel, _ in panels for line in panel.lines}
    heads = [panel.title for panel, _ in panels[:columns]]

    def paint(figure: Any, side_by_side: int) -> None:
        axes = axes_of(figure, len(panels), side_by_side)
        for position, (axis, (panel, limits)) in enumerate(zip(axes, panels, strict=True)):
            # One below the other, a panel that is headed by the first of its column needs that title itself.
            title = panel.title or (heads[position % columns] if side_by_side < columns else "")
            _draw_panel(
                axis, replace(panel, title=title), labels_y=labels_every_y or position % side_by_side == 0
            )
            axis.set_ylim(*limits)
        legend_below(figure, *axes)

    def height(columns: int, width_in: float) -> float:
        return rows_of(len(panels), columns) * height_in + legend_in(labels, width_in)

    return paint, height


def _draw_panel(axis: Any, panel: Panel, labels_y: bool) -> None:
    if panel.log_x:
        axis.set_xscale("log")
    if panel.log_y:
        axis.set_yscale("log")
    # Below a curve that coincides with it a curve is wider, so that both can be seen.
    above = {
        member: len(group) - 1 - place
        for group in coinciding([np.concatenate([line.x, line.y]) for line in panel.lines])
        for place, member in enumerate(group)
        if panel.widens
    }
    for member, line in enumerate(panel.lines):
        _draw_line(axis, line, panel, line.style.width + WIDER_PT * above.get(member, 0))
    for mark in panel.marks:
        _draw_mark(axis, mark)
    axis.set_title(panel.title)
    axis.set_xlabel(panel.x_label)
    if labels_y:
        axis.set_ylabel(panel.y_label)
    else:
        axis.tick_params(labelleft=False)
    axis.grid(True, which="major", color=FRAME["grid"], linewidth=0.6)
    axis.grid(True, which="minor", color=FRAME["faint"], linewidth=0.4)
    axis.set_axisbelow(True)
    _plain_ticks(axis, panel)


def coinciding(curves: Sequence[Array]) -> list[list[int]]:
    """The numbers of the curves in groups; those of one group look the same.

    >>> coinciding([np.array([2.0, 1.0]), np.array([2.0, 0.5]), np.array([2.0, 1.001])])
    [[0, 2], [1]]
    """
    groups: list[list[int]] = []
    for index, curve in enumerate(curves):
        for group in groups:
            first = curves[group[0]]
            if len(first) == len(curve) and np.allclose(first, curve, rtol=SAME_TO_THE_EYE, atol=0):
                group.append(index)
                break
        else:
            groups.append([index])
    return groups


def _y_limits(panels: Sequence[Panel]) -> tuple[float, float]:
    """Room for all curves and their bands; noisy raw points may be cut off, because they would stretch the scale."""
    edges = [
        edge
        for panel in panels
        for line in panel.lines
        for edge in (line.y, line.low, line.high)
        if edge is not None and len(edge)
    ]
    low, high = min(float(edge.min()) for edge in edges), max(float(edge.max()) for edge in edges)
    if panels[0].log_y:
        return low / 1.3, high * 1.3
    margin = 0.05 * (high - low or abs(high) or 1.0)
    return 0.0 if panels[0].from_zero else low - margin, high + margin


def _draw_line(axis: Any, line: Line, panel: Panel, width: float) -> None:
    # A logarithmic axis has no zero: the first loss, before any step, is left out there.
    shown = line.x > 0 if panel.log_x else np.full(len(line.x), True)
    style = line.style
    colour = COLOURS[style.colour]
    if line.raw is not None:
        axis.plot(line.x[shown], line.raw[shown], color=colour, linewidth=0.5, alpha=0.22)
    if line.low is not None and line.high is not None:
        band = {"color": colour, "alpha": panel.band_alpha, "linewidth": 0}
        axis.fill_between(line.x[shown], line.low[shown], line.high[shown], **band)
    axis.plot(
        line.x[shown],
        line.y[shown],
        color=colour,
        linestyle=DASHES[style.dash],
        linewidth=width,
        solid_capstyle="round",
        marker=style.marker,
        markersize=4.5,
        label=style.label,
    )


def _draw_mark(axis: Any, mark: Mark) -> None:
    on_edge = mark.y is None
    axis.plot(
        [mark.x],
        [1.0 if mark.y is None else mark.y],
        transform=axis.get_xaxis_transform() if on_edge else axis.transData,
        clip_on=False,
        linestyle="none",
        marker=mark.marker,
        markersize=8 if on_edge else 11,
        markerfacecolor="none",
        markeredgewidth=1.6,
        color=COLOURS[mark.style.colour],
        label=mark.label or None,
        zorder=4,
    )


def _plain_ticks(axis: Any, panel: Panel) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if panel.log_y:
        decimal_ticks(axis)
    if panel.log_x and panel.most_ticks:
        axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axis.xaxis.set_major_formatter(FuncFormatter(short_number))
        axis.xaxis.set_minor_formatter(NullFormatter())
    elif panel.most_ticks:
        axis.xaxis.set_major_locator(MaxNLocator(nbins=panel.most_ticks))
    elif panel.log_x:
        places = sorted({x for line in panel.lines for x in line.x.tolist()})
        axis.xaxis.set_major_locator(FixedLocator(places) if len(places) <= FEW_PLACES else LogLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(short_number))
        axis.xaxis.set_minor_formatter(NullFormatter())
    else:
        axis.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))


def short_number(value: float, _: object = None) -> str:
    """A tick's number: 0.01, 10, 10k, 1M.

    >>> short_number(0.01), short_number(100.0), short_number(1e5), short_number(1e6)
    ('0.01', '100', '100k', '1M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
