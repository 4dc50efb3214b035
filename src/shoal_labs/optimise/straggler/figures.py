"""The figures of the part."""

from functools import partial

import numpy as np

from shoal.report.canvas import Drawing
from shoal.report.curves import Dash, Line, Panel, Style, draw
from shoal_labs.optimise.straggler.measure import StragglerMeasurements, Watched
from shoal_labs.optimise.straggler.plan import BASE, CONDITIONS, TARGET, WAYS
from shoal_labs.page.bars import GAP, Bar, BarPanel, Part, draw_bars
from shoal_labs.page.pictures import Draw
from shoal_labs.words import Words

LOOKS: dict[str, tuple[str, Dash, str]] = {
    "bsp": ("black", "solid", "o"),
    "ssp": ("blue", "dashed", "s"),
    "asp": ("vermilion", "solid", "^"),
    "backup": ("green", "dash-dotted", "D"),
    "balanced": ("purple", "dashed", "v"),
}
STALE = ("ssp", "asp")
"""The ways with stale updates."""


def figures(measured: StragglerMeasurements) -> dict[str, Draw]:
    """The figures by name."""
    return {
        "throughput": partial(throughput_figure, measured),
        "learning": partial(learning_figure, measured),
        "staleness": partial(staleness_figure, measured),
    }


def _style(way: str, words: Words) -> Style:
    colour, dash, marker = LOOKS[way]
    return Style(words(f"way.{way}"), colour, dash, marker)


def throughput_figure(measured: StragglerMeasurements, words: Words, font: str | None) -> Drawing:
    """Samples per second of every way, and what is missing to Σ 1/tᵢ."""

    def bar(label: str, watched: Watched) -> Bar:
        rate = watched.rate
        return Bar(label, (rate.value, max(0.0, watched.ideal.value - rate.value)))

    panels = [
        BarPanel(
            words(f"straggler.{condition}"),
            words("figure.rate_samples"),
            [
                bar(words("way.even"), measured.ways[BASE]),
                GAP,
                *(bar(words(f"way.{way}"), measured.ways[condition, way]) for way in WAYS),
            ],
        )
        for condition in CONDITIONS
    ]
    parts = [Part(words("figure.useful"), "blue"), Part(words("figure.lost"), "orange", "////")]
    return draw_bars(panels, parts, font=font)


def learning_figure(measured: StragglerMeasurements, words: Words, font: str | None) -> Drawing:
    """Accuracy over training time."""

    def line(condition: str, way: str) -> Line:
        watched = measured.ways[condition, way]
        return Line(_style(way, words), np.array(watched.seconds), 100 * np.array(watched.accuracies))

    def target(condition: str) -> Line:
        longest = max(measured.ways[condition, way].seconds[-1] for way in WAYS)
        ends = np.array([0.0, longest])
        return Line(Style(words("figure.target"), "grey", width=1.2), ends, np.full(2, 100 * TARGET))

    panels = [
        Panel(
            words(f"straggler.{condition}"),
            words("figure.seconds"),
            words("figure.validation"),
            [target(condition), *(line(condition, way) for way in WAYS)],
            log_x=False,
            log_y=False,
        )
        for condition in CONDITIONS
    ]
    return draw(panels, font=font)


def staleness_figure(measured: StragglerMeasurements, words: Words, font: str | None) -> Drawing:
    """How stale updates are, of the ways that have stale ones."""

    def line(condition: str, way: str) -> Line:
        found = measured.ways[condition, way].staleness
        values = np.arange(max(found) + 1, dtype=np.float64)
        counts = np.array([found.get(int(value), 0) for value in values], dtype=np.float64)
        return Line(_style(way, words), values, 100 * counts / counts.sum())

    panels = [
        Panel(
            words(f"straggler.{condition}"),
            words("figure.staleness"),
            words("figure.of_updates"),
            [line(condition, way) for way in STALE],
            log_x=False,
            log_y=False,
            from_zero=True,
        )
        for condition in CONDITIONS
    ]
    return draw(panels, font=font, height_in=2.8)
