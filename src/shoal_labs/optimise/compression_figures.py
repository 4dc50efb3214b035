"""The figures of gradient compression."""

from functools import partial
from typing import Any

import numpy as np

from shoal.kit.base import Phrase
from shoal.kit.figures import (
    COLOURS,
    FRAME,
    Dash,
    Drawing,
    Line,
    Panel,
    Style,
    axes_of,
    draw,
    heat_map,
    legend_below,
    legend_in,
    painted,
    rows_of,
)
from shoal.kit.findings import over_seeds
from shoal.kit.strategies import GroupCall, received_bytes
from shoal_labs.optimise.compression import CODECS, FEEDBACK, LINKS, NONE, CompressionMeasurements
from shoal_labs.page.bars import Bar, BarPanel, Part, draw_bars
from shoal_labs.page.pictures import Draw
from shoal_labs.words import Words

LOOKS: dict[str, tuple[str, Dash, str]] = {
    "none": ("black", "solid", "o"),
    "fp16": ("sky", "dashed", "s"),
    "int8": ("blue", "solid", "^"),
    "int4": ("indigo", "dashed", "v"),
    "terngrad": ("purple", "dash-dotted", "D"),
    "sign": ("orange", "solid", "P"),
    "topk": ("green", "dashed", "X"),
    "powersgd": ("vermilion", "solid", "*"),
}
MOST_GAIN = 10.0
"""Speed-ups from here on have the full shade."""
RATES_MBIT = np.geomspace(5.0, 20_000.0, 60)


def named(exchange: str) -> str | Phrase:
    """A codec, or what has another name than its own."""
    return Phrase(f"codec.{exchange.replace('-', '_')}") if exchange in (NONE, *FEEDBACK) else exchange


def _style(codec: str, words: Words) -> Style:
    colour, dash, marker = LOOKS[codec]
    return Style(words.shown(named(codec)), colour, dash, marker)


def steps_figure(measured: CompressionMeasurements, words: Words, font: str | None) -> Drawing:
    """A step with every codec on every link: the exchange, and the rest."""

    def bar(link: str, codec: str) -> Bar:
        timed = measured.timed[link][codec]
        scale = timed.step_ms.value / (timed.own_ms + timed.exchange_ms)
        parts = (timed.own_ms * scale, timed.exchange_ms * scale)
        return Bar(words.shown(named(codec)), parts, timed.step_ms.spread)

    panels = [
        BarPanel(words(f"link.{link}"), words("figure.step_ms"), [bar(link, codec) for codec in CODECS])
        for link in LINKS
    ]
    parts = [Part(words("figure.own"), "blue"), Part(words("figure.exchange"), "vermilion", "////")]
    return draw_bars(panels, parts, font=font, columns=2)


def pareto_figure(measured: CompressionMeasurements, words: Words, font: str | None) -> Drawing:
    """Accuracy over the time of a step, a panel for each link; a line through what no codec beats."""
    labels = [words("figure.front"), *(words.shown(named(codec)) for codec in CODECS)]

    def paint(figure: Any, columns: int) -> None:
        axes = axes_of(figure, len(LINKS), columns, sharey=True)
        for axis, link in zip(axes, LINKS, strict=True):
            points = pareto_points(measured, link)
            front = [points[codec] for codec in measured.front(link)]
            if front:
                axis.plot(*zip(*front, strict=True), color=COLOURS["grey"], linewidth=4, label=labels[0])
            for codec, point in points.items():
                style = _style(codec, words)
                axis.plot(*point, marker=style.marker, color=COLOURS[style.colour], linestyle="none",
                          markersize=7, label=style.label)  # fmt: skip
            axis.set_title(words(f"link.{link}"))
            axis.set_xlabel(words("figure.step_ms"))
            axis.set_xlim(left=0)
            axis.grid(True, color=FRAME["grid"], linewidth=0.6)
            axis.set_axisbelow(True)
        for axis in axes[::columns]:
            axis.set_ylabel(words("figure.accuracy"))
        legend_below(figure, axes[0])

    def height(columns: int, width_in: float) -> float:
        return 2.7 * rows_of(len(LINKS), columns) + legend_in(labels, width_in)

    return painted(paint, height, 2, font=font)


def pareto_points(measured: CompressionMeasurements, link: str) -> dict[str, tuple[float, float]]:
    """For each codec: the time of a step on a link in ms, and its accuracy in percent."""
    return {
        codec: (measured.timed[link][codec].step_ms.value, 100 * over_seeds(measured.accuracies[codec]).value)
        for codec in CODECS
    }


def map_figure(measured: CompressionMeasurements, words: Words, font: str | None) -> Drawing:
    """How many times as fast a step is as without compression, by codec and link."""
    gains = np.array(
        [
            [
                measured.timed[link][NONE].step_ms.value / measured.timed[link][codec].step_ms.value
                for link in LINKS
            ]
            for codec in CODECS[1:]
        ]
    )
    shades = np.clip(np.log(np.maximum(gains, 1.0)) / np.log(MOST_GAIN), 0.0, 1.0)
    numbers = np.array([[f"{gain:.2f} ×" for gain in row] for row in gains])

    def paint(figure: Any, columns: int) -> None:
        (axis,) = axes_of(figure, 1, columns)
        heat_map(axis, shades, numbers)
        axis.set_xticks(range(len(LINKS)), [words(f"link.{link}") for link in LINKS])
        axis.set_yticks(range(len(gains)), CODECS[1:])
        axis.tick_params(length=0)

    return painted(paint, lambda columns, width_in: 0.6 + 0.3 * len(gains), width_in=6.4, font=font)


def crossing_figure(measured: CompressionMeasurements, words: Words, font: str | None) -> Drawing:
    """The exchange of a step by the rate of the link, computed from encoding, decoding and bytes."""
    workers = measured.plan.workers
    lines: list[Line] = []
    for codec in CODECS:
        received = received_bytes(GroupCall(measured.operations[codec], measured.declared[codec]), workers)
        times = measured.local_ms[codec] + 8 * received / (RATES_MBIT * 1e3)
        colour, dash, _ = LOOKS[codec]
        lines.append(Line(Style(words.shown(named(codec)), colour, dash), RATES_MBIT, times))
    panel = Panel("", words("figure.rate"), words("figure.exchange_ms"), lines)
    return draw([panel], font=font, height_in=3.6)


def figures(measured: CompressionMeasurements) -> dict[str, Draw]:
    """The figures by name."""
    drawn = {"steps": steps_figure, "pareto": pareto_figure, "map": map_figure, "crossing": crossing_figure}
    return {name: partial(figure, measured) for name, figure in drawn.items()}
