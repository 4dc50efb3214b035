"""The two figures of a comparison: all losses together, and where a step's time goes."""

import colorsys
from collections.abc import Sequence
from typing import Any

from shoal.compare.comparison import KINDS, ComparedRun, Comparison
from shoal.report.canvas import Drawing, axes_of, font_for, legend_below, legend_in, painted, rows_of
from shoal.report.figures import coinciding
from shoal.report.svg import COLOURS, FRAME
from shoal.words import Words

SMOOTHED_OVER = 10
MOST_BARS = 24
"""With more workers than this, a bar is the mean of a run's workers."""
LOOKS: dict[str, tuple[str, str]] = {
    "compute": (COLOURS["blue"], ""),
    "wait": (COLOURS["orange"], "||||"),
    "move": (COLOURS["vermilion"], "////"),
    "encode": (COLOURS["green"], "...."),
    "other": (COLOURS["grey"], ""),
}
"""Colour and hatching of each kind of time: distinct in grey, too. In the order of a step, as in the labs."""
REFERENCE_STYLE: dict[str, Any] = {
    "color": COLOURS["grey"], "linewidth": 6.0, "solid_capstyle": "round", "zorder": 1.5
}  # fmt: skip
"""Below the other curves."""
PANELS = (("step", "steps"), ("time", "seconds"))
"""The way in which each panel shows the loss, and its unit."""
MARKERS = "os^vDP<>Xpd"
DASH_PT = 5.0


def loss_figure(comparison: Comparison, words: Words) -> Drawing:
    """Training loss against steps, where equal runs coincide, and against seconds, where they do not.

    The reference is a wide band, so that a curve on top of it can be seen. Curves that coincide take turns: each is
    drawn in dashes, which begin where those of the one before end, so that all their colours show along one line.
    """
    names = [entry.name for entry in comparison.entries]
    losses = {entry.name: entry.run.curve.smoothed(SMOOTHED_OVER) for entry in comparison.entries}
    others = [entry.name for entry in comparison.entries if entry is not comparison.reference]
    colours = dict(zip(others, distinct_colours(len(others)), strict=True))
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
            _decimal_ticks(axis)
            axis.set_ylim(axes[0].get_ylim())
            if position % columns == 0:
                axis.set_ylabel(words("figure.loss", steps=SMOOTHED_OVER))
            else:
                axis.tick_params(labelleft=False)
        legend_below(figure, *axes)

    def height(columns: int, width_in: float) -> float:
        return 3.6 * rows_of(2, columns) + legend_in(names, width_in)

    return painted(paint, height, columns=2, font=font_for(words.lang))


def distinct_colours(count: int) -> list[str]:
    """A colour for each run: the named ones without the reference's, then hues in even distances.

    >>> len(set(distinct_colours(40)))
    40
    """
    named = [colour for name, colour in COLOURS.items() if name != "grey"]
    more = max(0, count - len(named))
    hues = (colorsys.hls_to_rgb(index / more, 0.5, 0.55) for index in range(more))
    return [*named, *("#" + "".join(f"{round(255 * part):02x}" for part in hue) for hue in hues)][:count]


def turn_dashes(turn: int, of: int) -> Any:
    """The dashes of one of several coinciding curves: it is visible where the others pause.

    >>> turn_dashes(0, 1), turn_dashes(1, 3)
    ('-', (10.0, (5.0, 10.0)))
    """
    return "-" if of == 1 else ((of - turn) % of * DASH_PT, (DASH_PT, (of - 1) * DASH_PT))


def time_figure(comparison: Comparison, words: Words) -> Drawing:
    """A bar for each worker: how long a step takes it, and what that time consists of."""
    bars = _bars(comparison.entries, words)
    positions = _positions([name for name, _, _ in bars])

    def paint(figure: Any, columns: int) -> None:
        (axis,) = axes_of(figure, 1, columns)
        lefts = [0.0] * len(bars)
        for kind, (colour, hatch) in LOOKS.items():
            lengths = [milliseconds[kind] for _, _, milliseconds in bars]
            looks = {"color": colour, "hatch": hatch, "edgecolor": FRAME["paper"], "linewidth": 0.4}
            axis.barh(positions, lengths, 0.8, lefts, label=words(f"kind.{kind}"), **looks)
            lefts = [left + length for left, length in zip(lefts, lengths, strict=True)]
        axis.set_yticks(positions, [f"{name}  {worker}" for name, worker, _ in bars])
        axis.invert_yaxis()
        axis.set_xlabel(words("figure.step_ms"))
        _grid(axis)
        axis.grid(False, axis="y")
        axis.tick_params(axis="y", length=0)
        legend_below(figure, axis)

    def height(_: int, width_in: float) -> float:
        return 0.8 + 0.27 * len(bars) + legend_in([words(f"kind.{kind}") for kind in KINDS], width_in)

    return painted(paint, height, font=font_for(words.lang))


def _bars(entries: Sequence[ComparedRun], words: Words) -> list[tuple[str, str, dict[str, float]]]:
    """Name of the run, the worker, and milliseconds by kind."""
    by_worker = sum(len(entry.ranks) for entry in entries) <= MOST_BARS
    bars: list[tuple[str, str, dict[str, float]]] = []
    for entry in entries:
        shares = {words("figure.mean"): entry.shares}
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


def _decimal_ticks(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
