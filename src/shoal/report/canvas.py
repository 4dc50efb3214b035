"""Matplotlib without a display, in our style: figures as PNG and PDF, and as SVG for the page.

The page has two drawings of each figure: as wide as its text, and for phones, with one panel below another.
"""

import io
import warnings
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from shoal.printable import printable
from shoal.report.finished_runs import Array
from shoal.report.svg import COLOURS, FRAME, for_page

PAGE_IN, PHONE_IN = 8.2, 3.6
"""Widths of the text on a page and on a phone at 96 pixels per inch: letters keep their size on both."""
COLUMN_IN, COLUMN_PT = 3.3, 8.0
"""Width of a column of a paper in two columns, and its small letters."""
TEXT_PT = 9.5
LETTER_IN, LEGEND_ROW_IN = 0.62 * TEXT_PT / 72, 0.21
ON_FULL_SHADE = "#fefefe"
"""White in both themes."""
CHINESE_FONT = "Shoal CJK"
"""The family name of the font in `fonts/`."""


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


def painted(
    paint: Paint,
    height: Callable[[int, float], float],
    columns: int = 1,
    width_in: float = PAGE_IN,
    font: str | None = None,
) -> Drawing:
    """Run `paint` in our style for the page, and in one column for a phone; `height` depends on columns and width."""
    with in_our_style(font):
        wide = _empty_figure(width_in, height(columns, width_in))
        paint(wide, columns)
        narrow = _empty_figure(PHONE_IN, height(1, PHONE_IN))
        paint(narrow, 1)
        return Drawing(
            saved(wide, "png", dpi=200),
            saved(wide, "pdf", metadata={"CreationDate": None}),
            *(for_page(saved(each, "svg", transparent=True).decode()) for each in (wide, narrow)),
        )


def painted_column(paint: Paint, height: Callable[[int, float], float], font: str | None = None) -> bytes:
    """Run `paint` for one column of a paper: a PDF."""
    with in_our_style(font, COLUMN_PT):
        figure = _empty_figure(COLUMN_IN, height(1, COLUMN_IN * TEXT_PT / COLUMN_PT))
        paint(figure, 1)
        return saved(figure, "pdf", metadata={"CreationDate": None})


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


@cache
def chinese_font() -> str:
    """The font of the package with Chinese characters, registered with matplotlib by its path.

    Matplotlib's list of installed fonts is a cache that may be older than the fonts, and many machines have none.
    """
    from matplotlib import font_manager

    with resources.as_file(resources.files("shoal.report") / "fonts" / "ShoalCJK-Regular.otf") as path:
        font_manager.fontManager.addfont(path)
    return CHINESE_FONT


def font_for(lang: str) -> str | None:
    """The font for labels in a language; None: the usual one."""
    return chinese_font() if lang == "zh" else None


@contextmanager
def in_our_style(font: str | None, text_pt: float = TEXT_PT) -> Generator[None]:
    """Within this context matplotlib draws in our fonts, sizes and colours."""
    from matplotlib import rc_context

    settings: dict[Any, Any] = {
        # Digits and Latin letters from DejaVu in every language: pages show them in it, so they must be measured in it.
        "font.family": ["DejaVu Sans", *([font] if font else [])],
        "font.size": text_pt,
        "axes.titlesize": 10.5,
        **dict.fromkeys(
            ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), FRAME["ink"]
        ),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.unicode_minus": False,
        "pdf.fonttype": 42,
        "text.parse_math": False,  # a dollar sign in a name is a dollar sign
        "svg.fonttype": "none",
        "svg.hashsalt": "shoal",  # otherwise identifiers are random
    }
    with rc_context(settings), warnings.catch_warnings():
        # A character that no font has is drawn as a box; the warning does not help the reader.
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*missing.*")
        yield


def legend_below(figure: Any, *axes: Any) -> None:
    """The names of the curves of all axes, each once, below the axes, in as many columns as fit."""
    from matplotlib import rcParams

    unique: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            unique.setdefault(label, handle)
    columns = _legend_columns(unique, figure.get_figwidth() * TEXT_PT / rcParams["font.size"])
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


def decimal_ticks(axis: Any) -> None:
    """0.1, 0.2, 0.5 on a logarithmic scale of y rather than powers of ten, which are harder to read."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


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


def saved(figure: Any, kind: str, **options: Any) -> bytes:
    """The figure as a file of this kind."""
    from matplotlib.text import Text

    # Names of runs are texts of others: an SVG with control characters is not XML, and no font has half a character.
    for text in figure.findobj(Text):
        text.set_text(printable(text.get_text()))
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, **options)
    # Other files keep this layout: to find it takes as long as to draw.
    figure.set_layout_engine(None)
    return buffer.getvalue()
