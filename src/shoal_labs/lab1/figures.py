"""The lab's two figures: the three losses against three measures of effort, and the sweep."""

from functools import partial

import numpy as np

from shoal.kit.figures import Dash, Drawing, Line, Mark, Panel, Style, draw, seeds_line
from shoal.kit.runs import Array
from shoal_labs.lab1.measure import Lab1Measurements, Series
from shoal_labs.lab1.plan import NAMES, Name
from shoal_labs.page.pictures import Draw
from shoal_labs.words import Words

FEW_POINTS = 12
"""A curve with at most this many points marks each of them: a line of three points is easily overlooked."""
AXES = ("samples", "steps", "seconds")
LOOKS: dict[Name, tuple[str, Dash, str]] = {
    "gd": ("blue", "solid", "o"),
    "sgd": ("vermilion", "dashed", "s"),
    "adam": ("green", "dash-dotted", "^"),
}


def figures(measured: Lab1Measurements) -> dict[str, Draw]:
    """The figures by name."""
    return {"loss": partial(loss_figure, measured), "sweep": partial(sweep_figure, measured)}


def loss_figure(measured: Lab1Measurements, words: Words, font: str | None) -> Drawing:
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


def sweep_figure(measured: Lab1Measurements, words: Words, font: str | None) -> Drawing:
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
    x, losses = against(series, axis)
    first, window = series.curves[0], series.window
    raw = None if window == 1 else np.interp(x, getattr(first, axis), first.loss)
    return seeds_line(_style(series.name, words, marker=len(x) <= FEW_POINTS), x, losses, raw=raw)


def against(series: Series, axis: str) -> tuple[Array, Array]:
    """Common places of the seeds on an axis, and the smoothed loss of every seed there.

    Seeds have the same steps and samples, but not the same speed: against seconds, each seed's loss is interpolated at
    the same moments, up to the end of the fastest. The mean at step i of all seeds would join losses of different
    moments, and a pause of one seed would look like a plateau of all.
    """
    places: list[Array] = [getattr(curve, axis) for curve in series.curves]
    length = min(map(len, places))
    if axis != "seconds":
        return places[0][:length], np.stack([loss[:length] for loss in series.smoothed()])
    end = min(float(place[-1]) for place in places)
    moments = np.median(np.stack([place[:length] for place in places]), axis=0)
    moments = np.unique(np.append(moments[moments < end], end))
    return moments, np.stack(
        [np.interp(moments, place, loss) for place, loss in zip(places, series.smoothed(), strict=True)]
    )


def _style(name: Name, words: Words, marker: bool = False) -> Style:
    colour, dash, shape = LOOKS[name]
    return Style(words(f"name.{name}"), colour, dash, shape if marker else "")
