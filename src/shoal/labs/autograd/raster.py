"""The engine's SVG as PNG and PDF, for pages that hold pictures of those kinds: the same boxes, arrows and letters.

Knows what `shoal.autograd.draw` writes and nothing else: groups that are moved, boxes, lines, curves and text.
"""

import io
import re
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

from shoal.report.figures import Drawing

Point = tuple[float, float]
Element = tuple[ElementTree.Element, Point, bool]
"""An element, how far its groups have moved it, and whether its text is centred."""

PIXELS_PER_INCH = 96
POINTS_PER_PIXEL = 72 / PIXELS_PER_INCH
LINE_WIDTH = 0.8
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def drawing(svg: str, font: str | None = None) -> Drawing:
    """An SVG of ours in both forms; the PNG at twice its size, so that it stays sharp."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    root = ElementTree.fromstring(svg)
    width, height = (float(root.get(side, "0")) for side in ("width", "height"))
    families = ["DejaVu Sans", *([font] if font else [])]
    with rc_context({"font.family": families, "pdf.fonttype": 42}):
        figure = Figure(figsize=(width / PIXELS_PER_INCH, height / PIXELS_PER_INCH))
        FigureCanvasAgg(figure)
        axis: Any = figure.add_axes((0, 0, 1, 1))
        axis.set_axis_off()
        axis.set_xlim(0, width)
        axis.set_ylim(height, 0)
        for number, (element, moved, centred) in enumerate(_elements(root, (0.0, 0.0), False)):
            painter = _PAINTERS.get(_kind(element))
            if painter is not None:
                painter(axis, element, moved, centred, number)
        return Drawing(
            _saved(figure, "png", dpi=2 * PIXELS_PER_INCH),
            _saved(figure, "pdf", metadata={"CreationDate": None}),
        )


def _elements(parent: ElementTree.Element, moved: Point, centred: bool) -> Iterator[Element]:
    for child in parent:
        kind = _kind(child)
        if kind == "g":
            shift = [float(number) for number in _NUMBER.findall(child.get("transform", ""))] or [0.0, 0.0]
            place = (moved[0] + shift[0], moved[1] + shift[1])
            yield from _elements(child, place, centred or child.get("text-anchor") == "middle")
        elif kind != "defs":
            yield child, moved, centred


def _kind(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _value(element: ElementTree.Element, name: str) -> float:
    return float(element.get(name, "0"))


def _paint_box(axis: Any, box: ElementTree.Element, moved: Point, _: bool, order: int) -> None:
    from matplotlib.patches import FancyBboxPatch

    left, top = (_value(box, side) + shift for side, shift in zip(("x", "y"), moved, strict=True))
    corner = _value(box, "rx")
    axis.add_patch(
        FancyBboxPatch(
            (left, top),
            _value(box, "width"),
            _value(box, "height"),
            boxstyle=f"round,pad=0,rounding_size={corner}",
            facecolor=box.get("fill"),
            edgecolor=box.get("stroke", "none"),
            linewidth=LINE_WIDTH,
            zorder=order,
        )
    )


def _paint_curve(axis: Any, curve: ElementTree.Element, moved: Point, _: bool, order: int) -> None:
    from matplotlib.path import Path

    numbers = [float(number) for number in _NUMBER.findall(curve.get("d", ""))]
    points = [(x + moved[0], y + moved[1]) for x, y in zip(numbers[::2], numbers[1::2], strict=True)]
    _paint_path(axis, Path(points, [Path.MOVETO] + [Path.CURVE4] * (len(points) - 1)), curve, order)


def _paint_line(axis: Any, line: ElementTree.Element, moved: Point, _: bool, order: int) -> None:
    from matplotlib.path import Path

    ends = [(_value(line, f"x{end}") + moved[0], _value(line, f"y{end}") + moved[1]) for end in (1, 2)]
    _paint_path(axis, Path(ends), line, order)


def _paint_path(axis: Any, path: Any, element: ElementTree.Element, order: int) -> None:
    from matplotlib.patches import FancyArrowPatch, PathPatch

    dashes: Sequence[float] = [float(part) for part in element.get("stroke-dasharray", "").split()]
    look: dict[str, Any] = {
        "linestyle": (0, tuple(dashes)) if dashes else "-",
        "linewidth": LINE_WIDTH,
        "edgecolor": element.get("stroke"),
        "zorder": order,
    }
    if element.get("marker-end"):
        look |= {"arrowstyle": "-|>", "mutation_scale": 7, "shrinkA": 0, "shrinkB": 0}
        axis.add_patch(FancyArrowPatch(path=path, facecolor=element.get("stroke"), **look))
    else:
        axis.add_patch(PathPatch(path, facecolor="none", **look))


def _paint_text(axis: Any, text: ElementTree.Element, moved: Point, centred: bool, order: int) -> None:
    axis.text(
        _value(text, "x") + moved[0],
        _value(text, "y") + moved[1],
        # A dollar sign would begin a formula.
        (text.text or "").replace("$", r"\$"),
        fontsize=_value(text, "font-size") * POINTS_PER_PIXEL,
        fontweight=text.get("font-weight", "normal"),
        color=text.get("fill"),
        ha="center" if centred else "left",
        va="baseline",
        zorder=order,
    )


_PAINTERS = {"rect": _paint_box, "path": _paint_curve, "line": _paint_line, "text": _paint_text}


def _saved(figure: Any, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, **options)
    return buffer.getvalue()
