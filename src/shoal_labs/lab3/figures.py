"""The lab's figures: labels by worker, loss and accuracy by epoch, the parts of a step's time, coverage."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from shoal.kit.base import Phrase
from shoal.kit.figures import (
    COLOURS,
    MOST_COLUMNS,
    Dash,
    Drawing,
    Line,
    Panel,
    Style,
    axes_of,
    draw_apart,
    draw_grid,
    heat_map,
    painted,
    rows_of,
    seeds_line,
)
from shoal.kit.runs import Array
from shoal_labs.lab3.batches import SMALLEST
from shoal_labs.lab3.measure import Lab3Measurements, Learnt, Pace
from shoal_labs.lab3.plan import ALIKE, ALL_CORES, DIVISIONS, ONE_CORE, SLOW_RANDOM, TIMED, UNLIKE
from shoal_labs.page.bars import GAP, Bar, BarPanel, RatioPanel, draw_bars, time_parts
from shoal_labs.page.pictures import Draw
from shoal_labs.words import Words

LOOKS: dict[str, tuple[str, Dash, str]] = {
    "global": ("black", "dashed", ""),
    "random": ("blue", "solid", "o"),
    "sampling": ("purple", "dashed", "D"),
    "stratified": ("green", "dash-dotted", "^"),
    "contiguous": ("orange", "solid", "v"),
    "hash": ("vermilion", "dashed", "P"),
    "speed": ("sky", "dash-dotted", "x"),
    "dirichlet-1": ("olive", "dashed", "<"),
    "dirichlet-0.1": ("brown", "dash-dotted", ">"),
    "label": ("indigo", "solid", "s"),
    "right": ("blue", "solid", "o"),
    "range": ("vermilion", "solid", "s"),
    "rank-seed": ("green", "dash-dotted", "^"),
}
SHOWN_OWNERS = tuple(name for name in DIVISIONS if name != "global")
"""Under `global` no worker owns samples."""


def figures(measured: Lab3Measurements) -> dict[str, Draw]:
    """The figures by name."""
    curves: dict[str, Draw] = {
        name: partial(curves_figure, measured, workers)
        for workers, name in curve_names(measured.plan.workers).items()
    }
    return {
        "owners": partial(owners_figure, measured),
        **curves,
        "speed": partial(speed_figure, measured),
        "batches": partial(batches_figure, measured),
        "samplers": partial(samplers_figure, measured),
    }


def label_of(name: str, words: Callable[[str], str]) -> str:
    """A division, or a way of the lab's own loop, in words."""
    return words(f"division.{name}" if name in DIVISIONS else f"way.{name}")


def owners_figure(measured: Lab3Measurements, words: Words, font: str | None) -> Drawing:
    """How many samples of each label each worker has: a panel for each division, with the first seed."""
    most = measured.plan.most
    surveys = [measured.divided[name, most].seen[0].first for name in SHOWN_OWNERS]

    def paint(figure: Any, columns: int) -> None:
        axes = axes_of(figure, len(surveys), columns)
        for axis, name, seen in zip(axes, SHOWN_OWNERS, surveys, strict=True):
            histogram = seen.histogram.numpy()
            heat_map(axis, histogram / seen.whole.numpy(), histogram)
            axis.set_title(label_of(name, words))
            axis.set_xticks(range(len(seen.labels)), map(str, seen.labels))
            axis.set_yticks(range(most), map(str, range(most)))
            axis.tick_params(length=0, labelsize=8)
            _count_bars(axis, seen.per_worker, longest=max(max(each.per_worker) for each in surveys))
        for axis in axes[::columns]:
            axis.set_ylabel(words("figure.worker"))
        for axis in axes[-columns:]:
            axis.set_xlabel(words("figure.label"))

    def height(columns: int, width_in: float) -> float:
        return rows_of(len(surveys), columns) * (0.62 + 0.24 * most) + 0.3

    return painted(paint, height, MOST_COLUMNS, font=font)


def _count_bars(axis: Any, counts: Sequence[int], longest: int) -> None:
    """Bars of all samples of each worker, to the right of its row; their scale is that of all panels."""
    bars = axis.inset_axes([1.02, 0, 0.26, 1], ylim=axis.get_ylim(), xlim=(0, 1.6 * longest))
    drawn = bars.barh(range(len(counts)), counts, height=0.6, color=COLOURS["orange"])
    bars.bar_label(drawn, [f"{count:,}" for count in counts], padding=2, fontsize=7)
    bars.axis("off")


def curves_figure(measured: Lab3Measurements, workers: int, words: Words, font: str | None) -> Drawing:
    """Loss and accuracy by epoch: divisions that give all workers the same kind of data, and those that do not."""
    columns = {"alike": ALIKE, "unlike": ("random", *UNLIKE)}
    rows = [
        [
            _panel(
                words(f"figure.{kind}") if part == "loss" else "",
                part,
                [
                    _reference(measured.single, part, words),
                    *(_line(name, measured.divided[name, workers].learnt, part, words) for name in names),
                ],
                words,
            )
            for kind, names in columns.items()
        ]
        for part in ("loss", "accuracy")
    ]
    return draw_grid(rows, font=font)


def samplers_figure(measured: Lab3Measurements, words: Words, font: str | None) -> Drawing:
    """The right sampler and the wrong ones: samples seen so far, training loss, accuracy."""
    ways = ("right", "range", "rank-seed")

    def panel(part: str, workers: int) -> Panel:
        sampling = measured.divided["sampling", workers]
        own = {way: measured.own[way, workers] for way in ways}
        if part == "coverage":
            seen = {way: each.coverage for way, each in own.items()}
            seen["sampling"] = np.array([seed.coverage for seed in sampling.seen])
            lines = [_values(name, 100 * coverage, words) for name, coverage in seen.items()]
        else:
            learnt = {**{way: each.learnt for way, each in own.items()}, "sampling": sampling.learnt}
            lines = [_line(name, each, part, words) for name, each in learnt.items()]
        title = words("figure.workers", workers=workers) if part == "coverage" else ""
        return _panel(title, part, lines, words)

    parts = ("coverage", "loss", "accuracy")
    rows = [[panel(part, workers) for workers in measured.plan.workers] for part in parts]
    return draw_grid(rows, font=font)


def _panel(title: str, part: str, lines: Sequence[Line], words: Words) -> Panel:
    """A panel over epochs: losses on a logarithmic scale, coverage from zero."""
    return Panel(
        title,
        words("figure.epoch"),
        words(f"figure.{part}"),
        lines,
        log_x=False,
        log_y=part == "loss",
        from_zero=part == "coverage",
        band_alpha=0.08,
    )


def speed_figure(measured: Lab3Measurements, words: Words, font: str | None) -> Drawing:
    """Where the time of a step goes, and how many times as fast it is, by number of workers."""

    def bar(label: str, pace: Pace) -> Bar:
        parts = [part * pace.step_ms.value for part in (pace.own, pace.wait, pace.move)]
        return Bar(label, parts, pace.step_ms.spread)

    bars, ratios = list[BarPanel](), list[RatioPanel]()
    for workers in measured.plan.workers:
        title, rows = words("figure.workers", workers=workers), speed_rows(measured, workers)
        shown = [bar(words(label.key, **label.values), pace) if pace else GAP for label, pace in rows]
        bars.append(BarPanel(title, words("figure.step_ms"), shown))
        speeds = {
            words("figure.against_all_cores"): [pace and pace.against_all_cores for _, pace in rows],
            words("figure.against_one_core"): [pace and pace.against_one_core for _, pace in rows],
        }
        ratios.append(RatioPanel(title, words("figure.times_as_fast"), speeds))
    return draw_bars(bars, time_parts(words), ratios, font=font, columns=min(2, len(bars)))


def speed_rows(measured: Lab3Measurements, workers: int) -> list[tuple[Phrase, Pace | None]]:
    """One process, the divisions with equal workers, and those with a slow one; none: a gap between the groups."""
    paces, gap = measured.paces[workers], (Phrase(""), None)
    return [
        (Phrase("way.all_cores", {"cores": measured.plan.cores}), paces[ALL_CORES]),
        (Phrase("way.one_core"), paces[ONE_CORE]),
        gap,
        *((Phrase(f"division.{name}"), paces[name]) for name in TIMED if name != "speed"),
        gap,
        (Phrase("way.slow_random"), paces[SLOW_RANDOM]),
        (Phrase("way.slow_speed"), paces["speed"]),
    ]


def batches_figure(measured: Lab3Measurements, words: Words, font: str | None) -> Drawing:
    """Variance of the gradient and accuracy against the batch size."""
    batches = list(measured.batches.values())
    sizes = np.array(list(measured.batches), dtype=np.float64)
    variances = np.array([batch.variances for batch in batches]).T
    looks: dict[str, tuple[str, Dash, str]] = {
        "variance": ("green", "solid", "^"),
        "fixed": ("vermilion", "dashed", "s"),
        "scaled": ("blue", "solid", "o"),
    }
    styles = {name: Style(words(f"batches.{name}"), *look) for name, look in looks.items()}
    by_formula = variances.mean(axis=0)[0] * SMALLEST / sizes
    scatter = [
        Line(Style(words("batches.formula"), "grey", width=6.0), sizes, by_formula),
        seeds_line(styles["variance"], sizes, variances),
    ]
    learnt = {
        "fixed": np.array([batch.fixed for batch in batches]).T,
        "scaled": np.array([batch.scaled for batch in batches]).T,
    }
    accuracies = [seeds_line(styles[name], sizes, 100 * values) for name, values in learnt.items()]
    across = words("batches.size")
    panels = [
        Panel("", across, words("batches.variance_axis"), scatter),
        Panel("", across, words("batches.accuracy_axis"), accuracies, log_y=False),
    ]
    return draw_apart(panels, font=font)


def _line(name: str, learnt: Learnt, part: str, words: Words) -> Line:
    values = learnt.loss if part == "loss" else 100 * learnt.accuracy
    return _values(name, values, words)


def _values(name: str, values: Array, words: Words) -> Line:
    """The mean over the seeds, and a band from the lowest to the highest."""
    colour, dash, marker = LOOKS[name]
    style = Style(label_of(name, words), colour, dash, marker, width=1.5)
    return seeds_line(style, _epochs(values), values)


def _reference(single: Learnt, part: str, words: Words) -> Line:
    values = single.loss if part == "loss" else 100 * single.accuracy
    # A wide band, so that a curve on top of it can be seen.
    return Line(Style(words("way.single"), "grey", width=6.0), _epochs(values), values.mean(axis=0))


def _epochs(values: Array) -> Array:
    return np.arange(1.0, values.shape[1] + 1)


def curve_names(workers: Sequence[int]) -> dict[int, str]:
    """The figure of each number of workers.

    >>> curve_names([2, 4])
    {2: 'curves-2', 4: 'curves-4'}
    """
    return {each: f"curves-{each}" for each in workers}
