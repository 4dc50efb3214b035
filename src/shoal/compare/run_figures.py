"""The two figures of a comparison, losses and the time of a step, and captions that follow what is drawn."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.compare.comparison import KINDS, ComparedRun, Comparison
from shoal.report.canvas import (
    LETTER_IN,
    Drawing,
    axes_of,
    decimal_ticks,
    font_for,
    legend_below,
    legend_in,
    painted,
    rows_of,
)
from shoal.report.curves import Line, Panel, Style, coinciding, draw_apart
from shoal.report.finished_runs import Run, extremes
from shoal.report.svg import COLOURS, FRAME, LOOKS
from shoal.words import Words

SMOOTHED_OVER = 10
MOST_POINTS = 1000
"""Of a curve: twice as many points at most, with the extremes of the others."""
MOST_CURVES = 6
"""With more runs than this, each has a panel of its own; runs that look the same share one."""
PANEL_COLUMNS, PANEL_IN, TITLE_LINE_IN = 3, 1.75, 0.17
LABEL_IN = 3.0
"""Room for the label of the loss, where there is one row."""
MOST_BARS = 24
"""With more workers than this, a bar is the mean of a run's workers."""
REFERENCE_STYLE: dict[str, Any] = {
    "color": COLOURS["grey"], "linewidth": 6.0, "solid_capstyle": "round", "zorder": 1.5
}  # fmt: skip
"""Below the other curves."""
PANELS = (("step", "steps"), ("time", "seconds"))
"""The way in which each panel shows the loss, and its unit."""
RUN_COLOURS = [colour for name, colour in COLOURS.items() if name != "grey"]
"""Grey is the reference."""
MARKERS = "os^vDP"
TITLE_PT = 8.5
DASH_PT = 5.0


def captions(comparison: Comparison, words: Words) -> dict[str, str]:
    """The caption of each figure, for what the figure shows of these runs."""
    entries = comparison.entries
    loss = "one_loss" if len(entries) == 1 else "loss" if len(entries) <= MOST_CURVES else "many_losses"
    time = "time" if _shows_workers(entries) else "mean_time"
    if all(len(entry.ranks) == 1 for entry in entries):
        time = "one_time"
    reference = _drawn_below(comparison).name
    return {
        "loss": words(f"figure.{loss}_caption", reference=reference, steps=SMOOTHED_OVER),
        "time": words(f"figure.{time}_caption"),
    }


def training_figure(run: Run, words: Words) -> Drawing:
    """One run by step: training and validation loss, and the learning rate beside them."""
    curve = run.curve
    style = Style(words("figure.training"), "blue")
    shown = extremes(curve.loss, MOST_POINTS)
    lines = [Line(style, curve.steps[shown], curve.smoothed(SMOOTHED_OVER)[shown], raw=curve.loss[shown])]
    validated = [each for each in run.validations if each.get("loss") is not None]
    if validated:
        x, y = (np.array([each[key] for each in validated], dtype=np.float64) for key in ("step", "loss"))
        style = Style(words("figure.validation"), "vermilion", "dashed", marker="o")
        lines.append(Line(style, x, y))
    above_zero = all(line.y.min() > 0 for line in lines) and curve.loss.min() > 0
    panels = [
        Panel("", words("figure.steps"), words("figure.plain_loss"), lines, log_x=False, log_y=above_zero)
    ]
    if len(run.rates):
        style = Style(words("figure.rate"), "green")
        shown = extremes(run.rates, MOST_POINTS)
        rate = Line(style, curve.steps[shown], run.rates[shown])
        label = words("figure.steps"), words("figure.rate")
        panels.append(Panel("", *label, [rate], log_x=False, log_y=False, from_zero=True))
    return draw_apart(panels, font=font_for(words.lang))


def loss_figure(comparison: Comparison, words: Words) -> Drawing:
    """Training loss: a few runs together, against steps and seconds; many runs in panels, against steps."""
    together = len(comparison.entries) <= MOST_CURVES
    return _losses_together(comparison, words) if together else _losses_in_panels(comparison, words)


def _drawn_below(comparison: Comparison) -> ComparedRun:
    return comparison.reference or comparison.entries[0]


def _losses_in_panels(comparison: Comparison, words: Words) -> Drawing:
    """A panel for each group of runs whose curves look the same, over the reference."""
    below = _drawn_below(comparison).run.curve
    curves = [entry.run.curve for entry in comparison.entries]
    losses = [curve.smoothed(SMOOTHED_OVER) for curve in curves]
    groups = coinciding(losses)
    names = [", ".join(comparison.entries[index].name for index in group) for group in groups]

    def titles(width_in: float) -> list[str]:
        return [textwrap.fill(name, int(width_in / LETTER_IN) - 4, break_on_hyphens=False) for name in names]

    def paint(figure: Any, columns: int) -> None:
        axes = axes_of(figure, len(groups), columns, sharey=True)
        for axis, title, (index, *_) in zip(
            axes, titles(figure.get_figwidth() / columns), groups, strict=True
        ):
            axis.plot(below.steps, below.smoothed(SMOOTHED_OVER), **REFERENCE_STYLE)
            axis.plot(curves[index].steps, losses[index], color=COLOURS["blue"], linewidth=1.5)
            axis.set(yscale="log")
            axis.set_title(title, fontsize=TITLE_PT)
            _grid(axis)
            decimal_ticks(axis)
        for axis in axes[-columns:]:
            axis.set_xlabel(words("figure.steps"))
        figure.supylabel(words("figure.loss", steps=SMOOTHED_OVER), fontsize="medium")

    def height(columns: int, width_in: float) -> float:
        lines = max(title.count("\n") for title in titles(width_in / columns))
        rows = rows_of(len(groups), columns)
        return max(LABEL_IN, PANEL_IN * rows) + TITLE_LINE_IN * lines * rows

    return painted(paint, height, columns=min(PANEL_COLUMNS, len(groups)), font=font_for(words.lang))


def _losses_together(comparison: Comparison, words: Words) -> Drawing:
    """Loss against steps, where equal runs coincide, and against seconds, where they do not.

    The reference is a wide band, so that a curve on top of it can be seen. Curves that coincide take turns: each is
    drawn in dashes, which begin where those of the one before end, so that all their colours show along one line.
    """
    names = [entry.name for entry in comparison.entries]
    losses = {entry.name: entry.run.curve.smoothed(SMOOTHED_OVER) for entry in comparison.entries}
    reference = comparison.reference if len(names) > 1 else None
    others = [entry.name for entry in comparison.entries if entry is not reference]
    colours = dict(zip(others, RUN_COLOURS, strict=False))
    dashes = {
        name: turn_dashes(turn, len(group))
        for group in coinciding([losses[name] for name in others])
        for turn, name in enumerate(others[index] for index in group)
    }

    def paint(figure: Any, columns: int) -> None:
        axes = axes_of(figure, 2, columns)
        for number, entry in enumerate(comparison.entries):
            curve, loss, name = entry.run.curve, losses[entry.name], entry.name
            style, by_step = REFERENCE_STYLE, REFERENCE_STYLE
            if name in colours:
                # Markers along a curve are staggered, so that those of equal runs do not hide each other.
                stride = max(1, len(loss) // 4)
                marks = (round(number * stride / len(names)), stride)
                look = {"marker": MARKERS[number % len(MARKERS)], "markersize": 4, "markevery": marks}
                style = {"color": colours[name], "linewidth": 1.5, **look}
                by_step = {**style, "linestyle": dashes[name], "dash_capstyle": "butt"}
            axes[0].plot(curve.steps, loss, **by_step)
            axes[1].plot(curve.seconds, loss, label=name, **style)
        labels = [(words(f"figure.by_{way}"), words(f"figure.{unit}")) for way, unit in PANELS]
        for position, (axis, (title, label)) in enumerate(zip(axes, labels, strict=True)):
            axis.set(title=title, xlabel=label, yscale="log")
            _grid(axis)
            decimal_ticks(axis)
            axis.set_ylim(axes[0].get_ylim())
            if position % columns == 0:
                axis.set_ylabel(words("figure.loss", steps=SMOOTHED_OVER))
            else:
                axis.tick_params(labelleft=False)
        legend_below(figure, *axes)

    def height(columns: int, width_in: float) -> float:
        return 3.6 * rows_of(2, columns) + legend_in(names, width_in)

    return painted(paint, height, columns=2, font=font_for(words.lang))


def turn_dashes(turn: int, of: int) -> Any:
    """The dashes of one of several coinciding curves: it is visible where the others pause.

    >>> turn_dashes(0, 1), turn_dashes(1, 3)
    ('-', (10.0, (5.0, 10.0)))
    """
    return "-" if of == 1 else ((of - turn) % of * DASH_PT, (DASH_PT, (of - 1) * DASH_PT))


def time_figure(comparison: Comparison, words: Words) -> Drawing:
    """A bar for each worker, or each run if there are many: how long a step takes, and what that time consists of."""
    bars = _bars(comparison.entries, words)
    positions = _positions([name for name, _, _ in bars])
    kinds = [kind for kind in LOOKS if any(milliseconds[kind] for _, _, milliseconds in bars)]

    def paint(figure: Any, columns: int) -> None:
        (axis,) = axes_of(figure, 1, columns)
        lefts = [0.0] * len(bars)
        for kind in kinds:
            colour, hatch = LOOKS[kind]
            lengths = [milliseconds[kind] for _, _, milliseconds in bars]
            looks = {"color": colour, "hatch": hatch, "edgecolor": FRAME["paper"], "linewidth": 0.4}
            axis.barh(positions, lengths, 0.8, lefts, label=words(f"kind.{kind}"), **looks)
            lefts = [left + length for left, length in zip(lefts, lengths, strict=True)]
        axis.set_yticks(positions, [f"{name}  {worker}".rstrip() for name, worker, _ in bars])
        axis.invert_yaxis()
        axis.set_xlabel(words("figure.step_ms"))
        _grid(axis)
        axis.grid(False, axis="y")
        axis.tick_params(axis="y", length=0)
        legend_below(figure, axis)

    def height(_: int, width_in: float) -> float:
        return 0.8 + 0.27 * len(bars) + legend_in([words(f"kind.{kind}") for kind in kinds], width_in)

    return painted(paint, height, font=font_for(words.lang))


def _bars(entries: Sequence[ComparedRun], words: Words) -> list[tuple[str, str, dict[str, float]]]:
    """Name of the run, the worker, and milliseconds by kind."""
    by_worker = _shows_workers(entries)
    bars: list[tuple[str, str, dict[str, float]]] = []
    for entry in entries:
        shares = {"": entry.shares}
        if by_worker:
            several = len(entry.ranks) > 1
            shares = {
                words("figure.rank", rank=rank.rank) * several: {kind: getattr(rank, kind) for kind in KINDS}
                for rank in entry.ranks
            }
        step_ms = 1e3 * max(rank.train_s / rank.steps for rank in entry.ranks)
        for worker, parts in shares.items():
            bars.append((entry.name, worker, {kind: step_ms * part for kind, part in parts.items()}))
    return bars


def _shows_workers(entries: Sequence[ComparedRun]) -> bool:
    """Whether each worker has a bar of its own."""
    return sum(len(entry.ranks) for entry in entries) <= MOST_BARS


def _positions(names: Sequence[str]) -> list[float]:
    """Positions of the bars: those of one run are close together."""
    positions: list[float] = []
    for index, name in enumerate(names):
        step = 0.86 if index and name == names[index - 1] else 1.35
        positions.append(positions[-1] + step if positions else 0.0)
    return positions


def _grid(axis: Any) -> None:
    axis.grid(True, color=FRAME["grid"], linewidth=0.6)
    axis.set_axisbelow(True)
