"""The lab's two figures: the three losses against three measures of effort, and the sweep."""

from functools import partial

import numpy as np

from shoal.labs.lab1.measure import Measurements, Series
from shoal.labs.lab1.plan import NAMES, Name
from shoal.labs.page.pictures import Draw
from shoal.labs.words import Words
from shoal.report.canvas import Drawing
from shoal.report.figures import Dash, Line, Mark, Panel, Style, draw, seeds_line
from shoal.report.runs import mean_curve

FEW_POINTS = 12
"""A curve with at most this many points marks each of them: a line of three points is easily overlooked."""
AXES = ("samples", "steps", "seconds")
LOOKS: dict[Name, tuple[str, Dash, str]] = {
    "gd": ("blue", "solid", "o"),
    "sgd": ("vermilion", "dashed", "s"),
    "adam": ("green", "dash-dotted", "^"),
}


def figures(measured: Measurements) -> dict[str, Draw]:
    """The figures by name."""
    return {"loss": partial(loss_figure, measured), "sweep": partial(sweep_figure, measured)}


def loss_figure(measured: Measurements, words: Words, font: str | None) -> Drawing:
    """One row of panels with a common scale: the same losses against samples, steps and seconds."""
    panels = [
        Panel(
            words(f"figure.against_{axis}"),
            words(f"figure.{axis}"),
            words("figure.loss"),
            [_line(measured.series[name], axis, words) for name in NAMES],
        )
        for axis in AXES
    ]
    return draw(panels, font=font)


def sweep_figure(measured: Measurements, words: Words, font: str | None) -> Drawing:
    """Validation loss against learning rate; rates that diverged are on the upper edge."""
    lines: list[Line] = []
    marks: list[Mark] = []
    for name in NAMES:
        result = measured.sweeps[name]
        kept = [trial for trial in result.trials if not trial.diverged]
        style = _style(name, words, marker=True)
        rates, losses = (np.array([getattr(t, key) for t in kept]) for key in ("rate", "validation_loss"))
        lines.append(Line(style, rates, losses))
        marks.append(Mark(style, result.best.rate, result.best.validation_loss, "o"))
        marks += [Mark(style, trial.rate, None, "x") for trial in result.trials if trial.diverged]
    panel = Panel("", words("figure.rate"), words("figure.validation_loss"), lines, marks=marks)
    return draw([panel], font=font, width_in=6.4)


def _line(series: Series, axis: str, words: Words) -> Line:
    mean = mean_curve(series.curves)
    smoothed = np.stack([loss[: len(mean.loss)] for loss in series.smoothed()])
    first = series.curves[0].loss[: len(mean.loss)]
    style = _style(series.name, words, marker=len(mean.loss) <= FEW_POINTS)
    return seeds_line(style, getattr(mean, axis), smoothed, raw=None if series.window == 1 else first)


def _style(name: Name, words: Words, marker: bool = False) -> Style:
    colour, dash, shape = LOOKS[name]
    return Style(words(f"name.{name}"), colour, dash, shape if marker else "")
