"""A panel of curves as SVG without matplotlib: in a few milliseconds, for a page that changes while one looks at it.

The panels, lines and styles are those of `curves`. Bands and marks are left out.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from shoal.report.canvas import PAGE_IN, PHONE_IN
from shoal.report.curves import Dash, Line, Panel, short_number
from shoal.report.finished_runs import Array
from shoal.report.svg import COLOURS, FRAME, SMALL, for_page, svg_of, svg_text, text_width

PIXELS_PER_IN = 96
HIGH, TITLE, AXIS, LEGEND = 200, 22, 36, 20
"""Heights in pixels."""
DASHES: dict[Dash, str] = {"solid": "", "dashed": "7 3", "dash-dotted": "9 3 2 3"}
TICK_EVERY_X, TICK_EVERY_Y = 90, 45
INK = FRAME["ink"]
Scale = Callable[[Array], Array]
"""From values to pixels."""


def drawings_of(panel: Panel) -> tuple[str, str]:
    """The drawing for a page, and the one for a phone; several lines have a legend above."""
    return _drawing(panel, PAGE_IN * PIXELS_PER_IN), _drawing(panel, PHONE_IN * PIXELS_PER_IN)


def _drawing(panel: Panel, wide: float) -> str:
    low, high = _limits(panel)
    y_ticks = _log_ticks(low, high) if panel.log_y else _ticks(low, high, HIGH / TICK_EVERY_Y)
    labels = [short_number(tick) for tick in y_ticks]
    left = max((text_width(label, SMALL) for label in labels), default=0) + 8
    first = min((float(line.x[0]) for line in panel.lines), default=0.0)
    last = max((float(line.x[-1]) for line in panel.lines), default=1.0)
    last = max(last, first + 1.0)

    def x(value: Array) -> Array:
        return left + (value - first) / (last - first) * (wide - left - 10)

    label_room = text_width(panel.y_label, SMALL) + 24
    top, legend = _legend(panel.lines, max(left, label_room), wide) if len(panel.lines) > 1 else (TITLE, [])
    bottom = top + HIGH

    def y(value: Array) -> Array:
        scaled = [np.log(each) if panel.log_y else np.asarray(each) for each in (value, low, high)]
        return np.clip(bottom - HIGH * (scaled[0] - scaled[1]) / (scaled[2] - scaled[1]), top, bottom)

    parts = [svg_text(panel.y_label, 0, 12, INK, f'font-size="{SMALL}"'), *legend]
    for tick, label in zip(y_ticks, labels, strict=True):
        at = float(y(np.array(tick)))
        parts.append(
            f'<line x1="{left:g}" x2="{wide - 10:g}" y1="{at:.1f}" y2="{at:.1f}" stroke="{FRAME["grid"]}"/>'
        )
        parts.append(
            svg_text(label, left - 6, round(at + 4, 1), INK, f'font-size="{SMALL}" text-anchor="end"')
        )
    parts.append(
        f'<line x1="{left:g}" x2="{wide - 10:g}" y1="{bottom}" y2="{bottom}" stroke="{FRAME["rule"]}"/>'
    )
    for tick in _ticks(first, last, (wide - left) / TICK_EVERY_X):
        at = float(x(np.array(tick)))
        parts.append(
            svg_text(f"{tick:,.0f}", at, bottom + 15, INK, f'font-size="{SMALL}" text-anchor="middle"')
        )
    parts.append(
        svg_text(panel.x_label, wide - 10, bottom + 31, INK, f'font-size="{SMALL}" text-anchor="end"')
    )
    for line in panel.lines:
        parts += _curve(line, x, y)
    return for_page(svg_of(wide, bottom + AXIS, parts))


def _limits(panel: Panel) -> tuple[float, float]:
    """Room for all curves; of thin points behind them, for all but the outermost hundredth."""
    values = [line.y for line in panel.lines if len(line.y)]
    values += [np.quantile(line.raw, [0.005, 0.995]) for line in panel.lines if line.raw is not None]
    low = min((float(each.min()) for each in values), default=0.0)
    high = max((float(each.max()) for each in values), default=1.0)
    if panel.log_y:
        return low / 1.1, high * 1.1
    margin = 0.05 * (high - low or abs(high) or 1.0)
    return (0.0 if panel.from_zero else low - margin), high + margin


def _curve(line: Line, x: Scale, y: Scale) -> Iterator[str]:
    colour = COLOURS[line.style.colour]
    stroke = f'fill="none" stroke="{colour}"'
    if line.raw is not None:
        yield f'<polyline points="{_points(x(line.x), y(line.raw))}" {stroke} stroke-width="0.6" opacity="0.35"/>'
    dash = DASHES[line.style.dash]
    dashes = f' stroke-dasharray="{dash}"' * bool(dash)
    points = _points(x(line.x), y(line.y))
    yield f'<polyline points="{points}" {stroke} stroke-width="{line.style.width}"{dashes}/>'
    if line.style.marker:
        for place in points.split():
            across, down = place.split(",")
            yield f'<circle cx="{across}" cy="{down}" r="2.6" fill="{colour}"/>'


def _points(x: Array, y: Array) -> str:
    return " ".join(f"{across:.1f},{down:.1f}" for across, down in zip(x.tolist(), y.tolist(), strict=True))


def _legend(lines: Sequence[Line], left: float, wide: float) -> tuple[float, list[str]]:
    """What the lines are, right of `left`; and how deep that is."""
    across, y, parts = left, 2.0, list[str]()
    for line in lines:
        room = 44 + text_width(line.style.label, SMALL)
        if across > left and across + room > wide:
            across, y = left, y + LEGEND
        dash = DASHES[line.style.dash]
        dashes = f' stroke-dasharray="{dash}"' * bool(dash)
        parts.append(
            f'<line x1="{across:g}" x2="{across + 24:g}" y1="{y + 6:g}" y2="{y + 6:g}" '
            f'stroke="{COLOURS[line.style.colour]}" stroke-width="{line.style.width}"{dashes}/>'
        )
        parts.append(svg_text(line.style.label, across + 30, y + 10, INK, f'font-size="{SMALL}"'))
        across += room
    return y + LEGEND, parts


def _ticks(low: float, high: float, most: float) -> list[float]:
    """Round numbers between two.

    >>> _ticks(0.0, 470.0, 6)
    [0.0, 100.0, 200.0, 300.0, 400.0]
    """
    least = (high - low) / max(most, 1.0)
    power = 10.0 ** math.floor(math.log10(least))
    size = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
    return [
        number * size for number in range(math.ceil(low / size - 1e-9), math.floor(high / size + 1e-9) + 1)
    ]


def _log_ticks(low: float, high: float) -> list[float]:
    """0.1, 0.2, 0.5, 1, 2; powers of ten over a wide range; round numbers within a factor of three.

    >>> [round(tick, 3) for tick in _log_ticks(0.07, 3.0)]
    [0.1, 0.2, 0.5, 1.0, 2.0]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if len(powers) < 6 else (1,)
    found = [factor * 10.0**power for power in powers for factor in factors]
    inside = [tick for tick in found if low <= tick <= high]
    return inside if len(inside) > 2 else [tick for tick in _ticks(low, high, 4) if tick > 0]
