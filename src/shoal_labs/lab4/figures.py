"""The lab's figures: loss and accuracy, the parts of a step's time, timelines, micro-batches, cuts."""

from functools import partial

import numpy as np

from shoal.kit.figures import (
    Dash,
    Drawing,
    Line,
    Panel,
    Style,
    TimelineWords,
    coinciding,
    draw,
    draw_grid,
    draw_timeline,
)
from shoal.kit.runs import Array
from shoal.kit.strategies import FORMULAS, UNIT_TIMES, ActionKind, Timeline
from shoal_labs.lab4.measure import Lab4Measurements
from shoal_labs.lab4.plan import MICROBATCHES, SCHEDULES
from shoal_labs.page.bars import GAP, Bar, BarPanel, Part, draw_bars, time_parts
from shoal_labs.page.pictures import Draw, Svg
from shoal_labs.words import Words

LOOKS: dict[str, tuple[str, Dash, str]] = {
    "single": ("grey", "solid", ""),
    "rpc": ("orange", "solid", "v"),
    f"rpc-{MICROBATCHES}": ("vermilion", "dashed", "P"),
    "sequential": ("brown", "dash-dotted", "<"),
    "gpipe": ("green", "dash-dotted", "^"),
    "1f1b": ("blue", "solid", "o"),
    "zero-bubble": ("purple", "dashed", "D"),
    "tensor": ("indigo", "solid", "s"),
}
ALWAYS_SHOWN = ("single", "rpc", "1f1b", "tensor")
"""One of each kind; another way has curves of its own only if they differ from one machine's."""


def figures(measured: Lab4Measurements) -> dict[str, Draw]:
    """The figures by name."""
    timelines: dict[str, Draw] = {}
    for name in SCHEDULES:
        pipelined = measured.pipelined[name]
        timelines[f"measured-{name}"] = Svg(partial(timeline_figure, name, pipelined.typical, "measured"))
        timelines[f"ideal-{name}"] = Svg(partial(timeline_figure, name, pipelined.ideal, "ideal"))
    return {
        "curves": partial(curves_figure, measured),
        "times": partial(times_figure, measured),
        **timelines,
        "microbatches": partial(microbatches_figure, measured),
        "cuts": partial(cuts_figure, measured),
    }


def label_of(name: str, words: Words) -> str:
    """A way of training in words."""
    return words(f"way.{name}")


def curves_figure(measured: Lab4Measurements, words: Words, font: str | None) -> Drawing:
    """Training loss and validation accuracy by epoch, of one machine and of every division."""

    def values(name: str, part: str) -> Array:
        learnt = measured.learnt[name]
        return learnt.loss if part == "loss" else 100 * learnt.accuracy

    def line(name: str, part: str) -> Line:
        shown = values(name, part)
        colour, dash, marker = LOOKS[name]
        style = Style(label_of(name, words), colour, dash, marker, width=1.5)
        return Line(style, np.arange(1.0, len(shown) + 1), shown)

    def hidden(name: str) -> bool:
        """Whether its curves look like one machine's."""
        return all(
            len(coinciding([values(name, part), values("single", part)])) == 1
            for part in ("loss", "accuracy")
        )

    names = [name for name in measured.plan.ways if name in ALWAYS_SHOWN or not hidden(name)]
    rows = [
        [
            Panel(
                "",
                words("figure.epoch"),
                words(f"figure.{part}"),
                [line(name, part) for name in names],
                log_x=False,
                log_y=False,
            )
        ]
        for part in ("loss", "accuracy")
    ]
    return draw_grid(rows, font=font)


def times_figure(measured: Lab4Measurements, words: Words, font: str | None) -> Drawing:
    """What every worker does in a step, one bar for each worker of each way."""
    bars: list[Bar] = []
    for name in measured.plan.ways:
        way = measured.ways[name]
        bars += [GAP] if bars else []
        for rank in way.ranks:
            parts = (rank.own, rank.wait, rank.move)
            label = label_of(name, words)
            if len(way.ranks) > 1:
                label = words("figure.worker", way=label, rank=rank.rank)
            bars.append(Bar(label, [part * way.step_ms.value for part in parts]))
    panel = BarPanel("", words("figure.step_ms"), bars)
    return draw_bars([panel], time_parts(words), font=font)


def timeline_figure(name: str, drawn: Timeline, kind: str, words: Words) -> str:
    """One step of a schedule."""
    kinds = {
        each: words(f"action.{each.value}")
        for each in (
            ActionKind.FORWARD,
            ActionKind.BACKWARD,
            ActionKind.BACKWARD_INPUT,
            ActionKind.BACKWARD_WEIGHT,
        )
    }
    labels = TimelineWords(kinds, words("action.idle"), words("action.stage"), words("action.time"))
    title = words(f"figure.{kind}", schedule=label_of(name, words), ms=drawn.makespan)
    return draw_timeline(drawn.rows, title, words=labels)


def microbatches_figure(measured: Lab4Measurements, words: Words, font: str | None) -> Drawing:
    """The bubble by number of micro-batches: measured, with the measured stage times, and by formula."""
    plan = measured.plan
    counted = plan.counted()
    counts = np.array(list(counted), dtype=np.float64)
    bubbles = [measured.bubble(name) for name in counted.values()]
    middle = np.array([100 * each.value for each in bubbles])
    spread = np.array([100 * each.spread for each in bubbles])
    formula = [100 * FORMULAS["1f1b"].bubble_of(plan.workers, count, UNIT_TIMES) for count in counted]
    lines = [
        Line(
            Style(words("figure.bubble_measured"), "blue", "solid", "o"),
            counts,
            middle,
            middle - spread,
            middle + spread,
        ),
        Line(
            Style(words("figure.bubble_ideal"), "green", "dashed", "^"),
            counts,
            np.array([100 * measured.pipelined[name].ideal.bubble for name in counted.values()]),
        ),
        Line(Style(words("figure.bubble_formula"), "black", "dash-dotted", "s"), counts, np.array(formula)),
    ]
    panel = Panel(
        "",
        words("figure.microbatches"),
        words("figure.bubble"),
        lines,
        log_x=False,
        log_y=False,
        from_zero=True,
    )
    return draw([panel], font=font)


def cuts_figure(measured: Lab4Measurements, words: Words, font: str | None) -> Drawing:
    """A step with every cut: the computing time of the slowest stage, and the rest."""

    def bar(layer: str, name: str) -> Bar:
        step, slowest = measured.ways[name].step_ms, max(measured.pipelined[name].stage_ms)
        parts = (min(slowest, step.value), max(0.0, step.value - slowest))
        return Bar(words("figure.cut", layer=layer), parts, step.spread)

    bars = [bar(layer, name) for layer, name in measured.plan.cuts().items()]
    parts = [
        Part(words("figure.slowest"), "blue"),
        Part(words("figure.rest"), "orange", "||||"),
    ]
    return draw_bars([BarPanel("", words("figure.step_ms"), bars)], parts, font=font)
