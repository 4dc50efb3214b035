"""Figures described as data, drawn by matplotlib without a display, saved as PNG and PDF.

The colours are those of Okabe and Ito, which colour-blind readers can distinguish; every curve also has a line style of
its own, for copies in grey. Every axis has a label with its unit.
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
    "grey": "#b4bac1",
}
CJK_FONTS = ("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "PingFang SC", "Microsoft YaHei", "SimHei",
             "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Noto Sans CJK JP", "Arial Unicode MS")  # fmt: skip
"""Fonts with Chinese characters, in order of preference."""


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


@dataclass(frozen=True)
class Drawing:
    """A figure in both forms."""

    png: bytes
    pdf: bytes


def draw(
    panels: Sequence[Panel], *, font: str | None = None, width_in: float = 0, height_in: float = 3.9
) -> Drawing:
    """Panels side by side with one scale for the loss and one legend below."""

    return draw_grid([panels], width_in or 3.3 * len(panels) + 0.6, height_in, font=font)


def draw_grid(
    rows: Sequence[Sequence[Panel]],
    width_in: float,
    height_in: float,
    *,
    legend_columns: int = 0,
    font: str | None = None,
) -> Drawing:
    """Rows of panels: one scale of y for each row, one legend for all (in one line unless columns are given)."""

    def paint(figure: Any) -> None:
        axes: Any = figure.subplots(len(rows), len(rows[0]), sharey="row", squeeze=False)
        for row_axes, panels in zip(axes, rows, strict=True):
            for position, (axis, panel) in enumerate(zip(row_axes, panels, strict=True)):
                _draw_panel(axis, panel, labels_y=position == 0)
            row_axes[0].set_ylim(*_y_limits(panels))
        legend_below(figure, *axes.flat, columns=legend_columns)

    return painted(paint, width_in, height_in, font)


def painted(
    paint: Callable[[Any], None], width_in: float, height_in: float, font: str | None = None
) -> Drawing:
    """Run `paint` on an empty figure of matplotlib in our style; PNG (200 dpi) and PDF."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with _settings(font):
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        FigureCanvasAgg(figure)
        paint(figure)
        return Drawing(_saved(figure, "png", dpi=200), _saved(figure, "pdf", metadata={"CreationDate": None}))


def chinese_font() -> str | None:
    """The name of an installed font with Chinese characters, or None."""
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
        # A character that no font has is drawn as a box; the warning does not help the reader.
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*missing.*")
        yield


def _draw_panel(axis: Any, panel: Panel, labels_y: bool) -> None:
    if panel.log_x:
        axis.set_xscale("log")
    if panel.log_y:
        axis.set_yscale("log")
    for line in panel.lines:
        _draw_line(axis, line, panel)
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
    margin = 0.05 * (high - low)
    return 0.0 if panels[0].from_zero else low - margin, high + margin


def _draw_line(axis: Any, line: Line, panel: Panel) -> None:
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
        linewidth=style.width,
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
    """0.1, 0.2, 0.5 and 10k rather than powers of ten, which are harder to read."""
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


def legend_below(figure: Any, *axes: Any, columns: int = 0) -> None:
    """The names of the curves of all axes, each once, below the axes; in one line unless columns are given."""
    unique: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            unique.setdefault(label, handle)
    options = {"ncols": columns or len(unique), "frameon": False}
    figure.legend(list(unique.values()), list(unique), loc="outside lower center", **options)


def _saved(figure: Any, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, **options)
    return buffer.getvalue()
