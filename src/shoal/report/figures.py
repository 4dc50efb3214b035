"""Figures described as data, drawn by matplotlib without a display, saved as PNG and PDF, and as SVG for the page.

The page has two drawings of each: as wide as its text, and for phones, with one panel below another. Every curve has a
colour, and a line style or marker of its own for copies in grey. Every axis has a label with its unit.
"""

import io
import warnings
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from shoal.printable import printable
from shoal.report.runs import Array
from shoal.report.svg import COLOURS, FRAME, for_page

PAGE_IN, PHONE_IN = 8.2, 3.6
"""Widths of the text on a page and on a phone at 96 pixels per inch: letters keep their size on both."""
TEXT_PT = 9.5
LETTER_IN, LEGEND_ROW_IN = 0.62 * TEXT_PT / 72, 0.21
ON_FULL_SHADE = "#fefefe"
"""White in both themes."""
SAME_TO_THE_EYE = 0.01
"""Curves whose values differ by less than this part everywhere cannot be distinguished in a figure."""
WIDER_PT = 2.2
MOST_COLUMNS = 3
"""More panels than this are drawn in several rows."""
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
    """A figure in all its forms."""

    png: bytes
    pdf: bytes
    wide_svg: str
    """For the page."""
    narrow_svg: str
    """For the page on a phone."""


Paint = Callable[[Any, int], None]
"""Paints on an empty figure of matplotlib, with at most this many panels side by side."""


def draw(
    panels: Sequence[Panel], *, font: str | None = None, width_in: float = PAGE_IN, height_in: float = 3.4
) -> Drawing:
    """Panels with one scale for the loss and one legend below."""
    limits = _y_limits(panels)
    columns = len(panels) if len(panels) <= MOST_COLUMNS else 2
    return _draw_panels([(panel, limits) for panel in panels], columns, width_in, height_in, font)


def draw_grid(rows: Sequence[Sequence[Panel]], *, font: str | None = None, height_in: float = 2.6) -> Drawing:
    """Rows of panels of this height: one scale of y for each row, one legend for all."""
    panels = [(panel, _y_limits(row)) for row in rows for panel in row]
    return _draw_panels(panels, len(rows[0]), PAGE_IN, height_in, font)


def _draw_panels(
    panels: Sequence[tuple[Panel, tuple[float, float]]],
    columns: int,
    width_in: float,
    height_in: float,
    font: str | None,
) -> Drawing:
    labels = {line.style.label for panel, _ in panels for line in panel.lines}

    def paint(figure: Any, columns: int) -> None:
        axes = axes_of(figure, len(panels), columns)
        for position, (axis, (panel, limits)) in enumerate(zip(axes, panels, strict=True)):
            _draw_panel(axis, panel, labels_y=position % columns == 0)
            axis.set_ylim(*limits)
        legend_below(figure, *axes)

    def height(columns: int, width_in: float) -> float:
        return rows_of(len(panels), columns) * height_in + legend_in(labels, width_in)

    return painted(paint, height, columns, width_in, font)


def painted(
    paint: Paint,
    height: Callable[[int, float], float],
    columns: int = 1,
    width_in: float = PAGE_IN,
    font: str | None = None,
) -> Drawing:
    """Run `paint` in our style for the page, and in one column for a phone; `height` depends on columns and width."""
    from matplotlib import rc_context

    # Identifiers in an SVG are random unless they are salted.
    with _settings(font), rc_context({"svg.hashsalt": "shoal", "svg.fonttype": "none"}):
        wide = _empty_figure(width_in, height(columns, width_in))
        paint(wide, columns)
        narrow = _empty_figure(PHONE_IN, height(1, PHONE_IN))
        paint(narrow, 1)
        return Drawing(
            _saved(wide, "png", dpi=200),
            _saved(wide, "pdf", metadata={"CreationDate": None}),
            *(for_page(_saved(each, "svg", transparent=True).decode()) for each in (wide, narrow)),
        )


def _empty_figure(width_in: float, height_in: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(width_in, height_in), layout=ConstrainedLayoutEngine(h_pad=0.07))
    FigureCanvasAgg(figure)
    return figure


def axes_of(figure: Any, count: int, columns: int, **options: Any) -> list[Any]:
    """Axes for this many panels, row by row."""
    axes = list(figure.subplots(rows_of(count, columns), columns, squeeze=False, **options).flat)
    for axis in axes[count:]:
        axis.remove()
    return axes[:count]


def rows_of(count: int, columns: int) -> int:
    """The rows that panels take up."""
    return -(-count // columns)


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
        "font.size": TEXT_PT,
        "axes.titlesize": 10.5,
        **dict.fromkeys(
            ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), FRAME["ink"]
        ),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.unicode_minus": False,
        "pdf.fonttype": 42,
        "text.parse_math": False,  # a dollar sign in a name is a dollar sign
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
    # Below a curve that coincides with it a curve is wider, so that both can be seen.
    above = {
        member: len(group) - 1 - place
        for group in coinciding([line.y for line in panel.lines])
        for place, member in enumerate(group)
    }
    for member, line in enumerate(panel.lines):
        _draw_line(axis, line, panel, line.style.width + WIDER_PT * above[member])
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
    margin = 0.05 * (high - low)
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


def legend_below(figure: Any, *axes: Any) -> None:
    """The names of the curves of all axes, each once, below the axes, in as many columns as fit."""
    unique: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            unique.setdefault(label, handle)
    columns = _legend_columns(unique, figure.get_figwidth())
    options = {"ncols": columns, "frameon": False, "columnspacing": 1.4, "handlelength": 2.6}
    figure.legend(list(unique.values()), list(unique), loc="outside lower center", **options)


def legend_in(labels: Collection[str], width_in: float) -> float:
    """The height of a legend of this width."""
    return LEGEND_ROW_IN * rows_of(len(labels), _legend_columns(labels, width_in)) if labels else 0.0


def _legend_columns(labels: Iterable[str], width_in: float) -> int:
    """Columns that fit beside each other; 6 letters for the line and the gap. The rows are filled evenly.

    >>> _legend_columns(["by label", "by speed", "random sampling"], PHONE_IN)
    2
    """
    widths = [sum(2 if letter > "\u2e80" else 1 for letter in label) + 6 for label in labels]
    fitting = max(1, min(len(widths), int(width_in / LETTER_IN / max(widths, default=1))))
    return rows_of(len(widths), rows_of(len(widths), fitting)) if widths else 1


def heat_map(axis: Any, parts: Array, numbers: Any = None, **options: Any) -> None:
    """Shades of one colour from none (the page) to full, with a number in each cell where given; a row each."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    full = to_rgb(COLOURS["blue"])
    shades = LinearSegmentedColormap.from_list("shades", [(*full, 0.0), (*full, 1.0)])
    axis.imshow(parts, cmap=shades, vmin=0, vmax=1, aspect="auto", interpolation="none", **options)
    for (row, column), number in np.ndenumerate(numbers if numbers is not None else np.zeros((0, 0))):
        if number:
            colour = ON_FULL_SHADE if parts[row, column] > 0.7 else FRAME["ink"]
            text = axis.text(column, row, number, ha="center", va="center", color=colour, fontsize=7)
            # It is inside the axes anyway, and measuring hundreds of texts takes seconds.
            text.set_in_layout(False)
    axis.hlines(np.arange(len(parts) - 1) + 0.5, *axis.get_xlim(), color=FRAME["rule"], linewidth=0.5)


def _saved(figure: Any, kind: str, **options: Any) -> bytes:
    from matplotlib.text import Text

    # Names of runs are texts of others: an SVG with control characters is not XML, and no font has half a character.
    for text in figure.findobj(Text):
        text.set_text(printable(text.get_text()))
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, **options)
    return buffer.getvalue()
