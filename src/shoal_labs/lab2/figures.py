"""The lab's figures: what an exchange costs, where a step's time goes, how the loss falls."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from shoal.kit.figures import Dash, Drawing, Line, Mark, Panel, Style, draw, seeds_line
from shoal.kit.runs import Curve, mean_curve
from shoal_labs.lab2.averaging import COURSE, MESSAGES
from shoal_labs.lab2.measure import Lab2Measurements, Trained, stage_start
from shoal_labs.lab2.plan import CONDITIONS, FAULTS, RULES
from shoal_labs.page.bars import GAP, Bar, BarPanel, draw_bars, measured_bar, time_parts
from shoal_labs.page.pictures import Draw
from shoal_labs.words import Words

SMOOTHED_OVER = 10
MOST_LOSS = 4.0
"""Larger losses are drawn here: a training that diverges would flatten all other curves."""
PACES = ("even", "compute", "compute-balanced", "batch", "link")
LOOKS: dict[str, tuple[str, Dash]] = {
    "sum": ("blue", "solid"),
    "mean": ("vermilion", "dashed"),
    "scaled": ("green", "dash-dotted"),
    "stages": ("purple", "dashed"),
}
RULE_LOOKS: dict[str, tuple[str, Dash]] = {
    "mean": ("black", "solid"),
    "median": ("blue", "dashed"),
    "trimmed_mean": ("green", "dash-dotted"),
    "krum": ("vermilion", "solid"),
}


def figures(measured: Lab2Measurements) -> dict[str, Draw]:
    """The figures by name."""
    return {
        "exchange": partial(exchange_figure, measured),
        "loss": partial(loss_figure, measured),
        "stages": partial(stages_figure, measured),
        "pace": partial(pace_figure, measured),
        "faults": partial(fault_figure, measured),
    }


def exchange_figure(measured: Lab2Measurements, words: Words, font: str | None) -> Drawing:
    """Waiting and moving of every branch, one panel for each condition."""

    def bars(condition: str, branches: Sequence[str]) -> list[Bar]:
        times = measured.branches[condition]
        return [
            measured_bar(
                words(f"branch.{name}"), (times[name].wait_ms, times[name].move_ms), times[name].exchange_ms
            )
            for name in branches
        ]

    panels = [
        BarPanel(
            words(f"condition.{condition}"),
            words("figure.exchange_ms"),
            [*bars(condition, COURSE), GAP, *bars(condition, MESSAGES)],
        )
        for condition in CONDITIONS
    ]
    return draw_bars(panels, time_parts(words)[1:], font=font, columns=2)


def pace_figure(measured: Lab2Measurements, words: Words, font: str | None) -> Drawing:
    """Where a step's time goes on every worker, under every condition."""
    bars: list[Bar] = []
    for name in PACES:
        for rank, times in enumerate(measured.paces[name].ranks):
            label = words("figure.rank", condition=words(f"condition.{name}"), rank=rank)
            bars.append(Bar(label, [part.value for part in times]))
        bars.append(GAP)
    return draw_bars([BarPanel("", words("figure.step_ms"), bars[:-1])], time_parts(words), font=font)


def loss_figure(measured: Lab2Measurements, words: Words, font: str | None) -> Drawing:
    """Sum and mean, of SGD and of Adam."""
    shown = {"sgd": ("sum", "mean", "scaled", "stages"), "adam": ("sum", "mean")}
    panels = [
        _loss_panel(
            words(f"figure.{optimizer}"),
            [_learnt_line(measured.learnt[f"{optimizer}-{way}"], _style(way, words)) for way in ways],
            words,
        )
        for optimizer, ways in shown.items()
    ]
    return draw(panels, font=font)


def stages_figure(measured: Lab2Measurements, words: Words, font: str | None) -> Drawing:
    """The time of each step's exchange in a run whose exchange changes half-way."""
    exchange = measured.link_stage_steps
    middle = stage_start(len(exchange))
    numbers = np.arange(len(exchange), dtype=np.float64)
    looks: dict[str, tuple[slice, str, Dash, str]] = {
        "gather_broadcast": (slice(middle), "blue", "solid", "o"),
        "by:ring": (slice(middle, None), "vermilion", "dashed", "s"),
    }
    lines = [
        Line(Style(words(f"branch.{name}"), colour, dash, marker), numbers[part], np.array(exchange[part]))
        for name, (part, colour, dash, marker) in looks.items()
    ]
    panel = Panel("", words("figure.steps"), words("figure.exchange_ms"), lines, log_x=False, log_y=False)
    return draw([panel], font=font, width_in=6.4, height_in=3.2)


def fault_figure(measured: Lab2Measurements, words: Words, font: str | None) -> Drawing:
    """The loss under every rule, a panel for each kind of faulty worker; a cross on the edge marks a stopped run."""
    panels: list[Panel] = []
    for fault in FAULTS:
        lines: list[Line] = []
        marks: list[Mark] = []
        for rule in RULES:
            found = measured.faulty[fault, rule]
            colour, dash = RULE_LOOKS[rule]
            style = Style(words(f"rule.{rule}"), colour, dash)
            lines.append(_line(style, found.curves[0]))
            if found.stopped:
                marks.append(Mark(style, float(len(found.curves[0].steps)), None, "x"))
        panels.append(_loss_panel(words(f"fault.{fault}"), lines, words, marks))
    return draw(panels, font=font)


def _loss_panel(title: str, lines: Sequence[Line], words: Words, marks: Sequence[Mark] = ()) -> Panel:
    return Panel(
        title, words("figure.steps"), words("figure.loss"), lines, log_x=False, log_y=True, marks=marks
    )


def _style(way: str, words: Words) -> Style:
    colour, dash = LOOKS[way]
    return Style(words(f"figure.{way}"), colour, dash)


def _line(style: Style, curve: Curve) -> Line:
    return Line(style, curve.steps, np.minimum(curve.smoothed(SMOOTHED_OVER), MOST_LOSS))


def _learnt_line(learnt: Trained, style: Style) -> Line:
    smoothed = np.stack([curve.smoothed(SMOOTHED_OVER) for curve in learnt.curves])
    return seeds_line(style, mean_curve(learnt.curves).steps, smoothed)
