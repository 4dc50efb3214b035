"""Figures: what to draw is data, drawn by matplotlib without a display, saved as PNG and PDF.

Colours are Okabe and Ito's, told apart by colour-blind readers; every curve also has a line style of its own, so that a
copy in grey still shows which is which. Every axis has a label with its unit.
"""

import io
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from shoal.report.runs import Array

COLOURS = {
    "blue": "#0072B2",
    "vermilion": "#D55E00",
    "green": "#009E73",
    "orange": "#E69F00",
    "purple": "#CC79A7",
    "black": "#000000",
}
CJK_FONTS = ("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "PingFang SC", "Microsoft YaHei", "SimHei",
             "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Noto Sans CJK JP", "Arial Unicode MS")  # fmt: skip
"""Fonts with Chinese letters, in the order we like them."""


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


@dataclass(frozen=True)
class Line:
    """A curve; a band where `low` and `high` are given; thin points behind it where `raw` is."""

    style: Style
    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None
    raw: Array | None = None


@dataclass(frozen=True)
class Mark:
    """A single point that is told apart: a choice, or something that has no place on the scale."""

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


@dataclass(frozen=True)
class Drawing:
    """A figure in both forms."""

    png: bytes
    pdf: bytes


def draw(
    panels: Sequence[Panel], *, font: str | None = None, width_in: float = 0, height_in: float = 3.9
) -> Drawing:
    """Panels side by side with one scale for the loss and one legend below."""

    def paint(figure: Any) -> None:
        axes: Any = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for position, (axis, panel) in enumerate(zip(axes, panels, strict=True)):
            _draw_panel(axis, panel, labels_y=position == 0)
        axes[0].set_ylim(*_y_limits(panels))
        legend_below(figure, axes[0])

    return painted(paint, width_in or 3.3 * len(panels) + 0.6, height_in, font)


def painted(
    paint: Callable[[Any], None], width_in: float, height_in: float, font: str | None = None
) -> Drawing:
    """What `paint` puts on an empty figure of matplotlib's, in our looks, as PNG (200 dpi) and PDF."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with _settings(font):
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        FigureCanvasAgg(figure)
        paint(figure)
        return Drawing(_saved(figure, "png", dpi=200), _saved(figure, "pdf", metadata={"CreationDate": None}))


def chinese_font() -> str | None:
    """The name of an installed font that has Chinese letters, or none."""
    from matplotlib import font_manager

    installed = {entry.name for entry in font_manager.fontManager.ttflist}
    return next((name for name in CJK_FONTS if name in installed), None)


@contextmanager
def _settings(font: str | None) -> Generator[None]:
    from matplotlib import rc_context

    settings: dict[Any, Any] = {
        "font.family": [*([font] if font else []), "DejaVu Sans"],
        "font.size": 9.5,
        "axes.titlesize": 10.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.unicode_minus": False,
        "pdf.fonttype": 42,
    }
    with rc_context(settings), warnings.catch_warnings():
        # A letter that neither font has is drawn as a box; no reader is helped by the warning.
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*missing.*")
        yield


def _draw_panel(axis: Any, panel: Panel, labels_y: bool) -> None:
    if panel.log_x:
        axis.set_xscale("log")
    if panel.log_y:
        axis.set_yscale("log")
    for line in panel.lines:
        _draw_line(axis, line, panel.log_x)
    for mark in panel.marks:
        _draw_mark(axis, mark)
    axis.set_title(panel.title)
    axis.set_xlabel(panel.x_label)
    if labels_y:
        axis.set_ylabel(panel.y_label)
    axis.grid(True, which="major", color="#d8dce0", linewidth=0.6)
    axis.grid(True, which="minor", color="#eceef0", linewidth=0.4)
    axis.set_axisbelow(True)
    _plain_ticks(axis, panel)


def _y_limits(panels: Sequence[Panel]) -> tuple[float, float]:
    """Room for all curves and their bands; noisy points behind them are cut off, for they would stretch the scale."""
    edges = [
        edge
        for panel in panels
        for line in panel.lines
        for edge in (line.y, line.low, line.high)
        if edge is not None and len(edge)
    ]
    low, high = min(float(edge.min()) for edge in edges), max(float(edge.max()) for edge in edges)
    return (
        (low / 1.3, high * 1.3)
        if panels[0].log_y
        else (low - 0.05 * (high - low), high + 0.05 * (high - low))
    )


def _draw_line(axis: Any, line: Line, log_x: bool) -> None:
    # Nothing lies at zero on a logarithmic axis: the first loss, before any step, is left out there.
    shown = line.x > 0 if log_x else np.full(len(line.x), True)
    style = line.style
    colour = COLOURS[style.colour]
    if line.raw is not None:
        axis.plot(line.x[shown], line.raw[shown], color=colour, linewidth=0.5, alpha=0.22)
    if line.low is not None and line.high is not None:
        axis.fill_between(
            line.x[shown], line.low[shown], line.high[shown], color=colour, alpha=0.18, linewidth=0
        )
    axis.plot(
        line.x[shown],
        line.y[shown],
        color=colour,
        linestyle=DASHES[style.dash],
        linewidth=1.8,
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
    """0.1, 0.2, 0.5 and 10k rather than powers of ten, which few readers take in at a glance."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if panel.log_y:
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_formatter(NullFormatter())
    if panel.log_x:
        axis.xaxis.set_major_locator(LogLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(_short))
        axis.xaxis.set_minor_formatter(NullFormatter())
    else:
        axis.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))


def _short(value: float, _: object = None) -> str:
    """A tick's number: 0.01, 10, 10k, 1M.

    >>> _short(0.01), _short(100.0), _short(1e5), _short(1e6)
    ('0.01', '100', '100k', '1M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def legend_below(figure: Any, axis: Any) -> None:
    """The names of what an axis shows, once, below all axes."""
    handles, labels = axis.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    figure.legend(
        list(unique.values()), list(unique), loc="outside lower center", ncols=len(unique), frameon=False
    )


def _saved(figure: Any, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, **options)
    return buffer.getvalue()
