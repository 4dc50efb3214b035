"""The figure of the part: memory against time, with the Pareto front."""

from functools import partial
from typing import Any

from shoal.memory.techniques import TECHNIQUES
from shoal.report.canvas import Drawing, axes_of, legend_below, legend_in, painted
from shoal.report.svg import COLOURS, FRAME
from shoal_labs.optimise.memory.measure import PLAIN, MemoryMeasurements, Tried
from shoal_labs.page.pictures import Draw
from shoal_labs.words import Words

LOOKS: dict[str, tuple[str, str]] = {
    PLAIN: ("black", "o"),
    "checkpointing": ("blue", "s"),
    "off-loading": ("green", "D"),
    "accumulation": ("vermilion", "^"),
    "step in backward": ("purple", "v"),
    "returning freed memory": ("brown", "p"),
    "8-bit state": ("orange", "P"),
    "bf16 parameters": ("sky", "X"),
}


def figures(measured: MemoryMeasurements) -> dict[str, Draw]:
    """The figure by its name."""
    return {"memory": partial(memory_figure, measured)}


def key_of(technique: str) -> str:
    """The words of a technique."""
    return "technique." + technique.replace(" ", "_").replace("-", "_")


def number_of(each: Tried) -> str:
    """The number in a setting that has one, which distinguishes it from others of its technique.

    >>> number_of(Tried("accumulation", "--micro-batch 8", True, (1.0, 2.0), (1.0, 2.0)))
    '8'
    """
    last = each.flags.rpartition(" ")[2]
    return last if last.isdecimal() else ""


def memory_figure(measured: MemoryMeasurements, words: Words, font: str | None) -> Drawing:
    """One point for each setting; hollow where training computes something else; a line and rings for the front."""
    techniques = [PLAIN, *(name for name in TECHNIQUES if measured.of(name))]
    labels = [words("figure.front"), *(words(key_of(name)) for name in techniques)]

    def paint(figure: Any, columns: int) -> None:
        (axis,) = axes_of(figure, 1, columns)
        front = [measured.tried[flags] for flags in measured.front()]
        points = [(each.step_ms.value, each.peak_mib.value) for each in front]
        halo = {"color": COLOURS["grey"], "linewidth": 4, "marker": "o", "markersize": 13}
        if points:
            axis.plot(*zip(*points, strict=True), **halo, label=labels[0])
        for name, label in zip(techniques, labels[1:], strict=True):
            colour, marker = LOOKS[name]
            settings = measured.of(name)
            for number, each in enumerate(settings):
                axis.plot(
                    each.step_ms.value,
                    each.peak_mib.value,
                    marker=marker,
                    color=COLOURS[colour],
                    markerfacecolor=COLOURS[colour] if each.is_exact else "none",
                    markeredgewidth=1.6,
                    linestyle="none",
                    markersize=8,
                    label=label if number == 0 else None,
                )
                if len(settings) > 1:
                    point = each.step_ms.value, each.peak_mib.value
                    axis.annotate(number_of(each), point, (10, 0), textcoords="offset points", va="center")
        axis.set_xlabel(words("figure.step_ms"))
        axis.set_ylabel(words("figure.peak"))
        axis.set_xlim(left=0)
        axis.set_ylim(bottom=0)
        axis.grid(True, color=FRAME["grid"], linewidth=0.6)
        axis.set_axisbelow(True)
        legend_below(figure, axis)

    return painted(paint, lambda columns, width_in: 3.6 + legend_in(labels, width_in), font=font)
