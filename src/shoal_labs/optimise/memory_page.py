"""The page of memory: claims, places, figure. A difference counts from a tenth on."""

from collections.abc import Callable
from functools import partial
from typing import Any

from shoal.kit.base import Phrase
from shoal.kit.figures import COLOURS, FRAME, Drawing, axes_of, legend_below, legend_in, painted
from shoal.kit.findings import NOTHING, Number, by_rounds
from shoal.kit.strategies import TECHNIQUES
from shoal.kit.training import RecomputedBlock
from shoal_labs.claims import Bound, Claim, Pair
from shoal_labs.optimise import memory
from shoal_labs.optimise.memory import PLAIN, MemoryMeasurements, Tried
from shoal_labs.optimise.part import Part, in_turns
from shoal_labs.page.page import source
from shoal_labs.page.table import PageTable
from shoal_labs.page.template import Content
from shoal_labs.words import Words

MARGIN = 1.1
"""How many times as much memory counts as more."""

# ── claims ──


def _saves(name: str, technique: str) -> Bound[MemoryMeasurements]:
    """The plain run's peak, and a technique's in the setting that saves most, round by round: no times."""

    def numbers(measured: MemoryMeasurements) -> dict[str, Number]:
        plain, less = measured.plain.peaks_mib, measured.of(technique)[-1].peaks_mib
        peaks = by_rounds(less, plain)
        return {
            "saved": by_rounds(plain, [MARGIN * each for each in less]).difference,
            "nothing": NOTHING,
            "plain": peaks.second,
            "less": peaks.first,
            "part": 100 * peaks.ratio,
            "percent": 100 * (MARGIN - 1),
        }

    return Bound(name, "saved > nothing", numbers)


def _slower(
    name: str,
    chosen: Callable[[MemoryMeasurements], Tried],
    also: Callable[[MemoryMeasurements], dict[str, Number]] = lambda _: {},
) -> Pair[MemoryMeasurements]:
    """Times of a step, round by round."""
    return in_turns(name, "other > 1.1 * plain", lambda m: (chosen(m).rounds_ms, m.plain.rounds_ms), also)


def _least(measured: MemoryMeasurements) -> Tried:
    return min(measured.tried.values(), key=lambda each: each.peak_mib.value)


CLAIMS: tuple[Claim[MemoryMeasurements], ...] = (
    _saves("recomputing_saves_memory", "checkpointing"),
    _slower("recomputing_costs_time", lambda m: m.of("checkpointing")[-1]),
    _saves("accumulation_saves_memory", "accumulation"),
    _slower("least_memory_is_slower", _least, lambda m: {"flags": _least(m).flags}),
)


# ── places of the page ──


def content(measured: MemoryMeasurements) -> Content:
    """Everything but the figure and findings."""
    size = measured.plan.size
    rounds = len(measured.plain.peaks_mib)
    return Content(
        each={"memory": [{"model": size.model.name, "batch": size.batch, "rounds": rounds}]},
        tables={"memory": _memory(measured)},
        code={"checkpointing": source(RecomputedBlock.__call__)},
    )


def technique(name: str) -> Phrase:
    """A technique in words."""
    return Phrase("technique." + name.replace(" ", "_").replace("-", "_"))


def _memory(measured: MemoryMeasurements) -> PageTable:
    """Memory and time of every setting."""
    front = measured.front()
    columns = {"technique": "", "flags": "", "peak (MiB)": ".1f", "step (ms)": ".0f"}
    return PageTable(
        {**columns, "time over plain (1)": ".2f", "exact": "", "on the Pareto front": ""},
        [
            [
                technique(each.technique),
                each.flags or None,
                each.peak_mib,
                each.step_ms,
                each.ratio(measured.plain),
                each.is_exact,
                each.flags in front or None,
            ]
            for each in measured.tried.values()
        ],
    )


# ── figure ──

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
    labels = [words("figure.front"), *(words.shown(technique(name)) for name in techniques)]

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


MEMORY = Part(
    plan=memory.plan_for,
    takes_data=False,  # its transformer needs sequences
    measure=memory.measure,
    claims=CLAIMS,
    figures=lambda measured: {"memory": partial(memory_figure, measured)},
    content=content,
)
