"""The page of slow workers: claims, places, figures.

A way counts as faster only if it is by a margin: runs follow each other, and the machine changes. Rates are samples per
second, epoch by epoch.
"""

from functools import partial

import numpy as np

from shoal.kit.base import Phrase
from shoal.kit.figures import Dash, Drawing, Line, Panel, Style, draw
from shoal.kit.findings import Finding, Number, Paired, by_rounds, first_lower, of_samples
from shoal.kit.page import Records
from shoal.kit.strategies import Ledger
from shoal.kit.training import balanced
from shoal_labs.claims import Bound, Claim, Computed, Pair
from shoal_labs.optimise import straggler
from shoal_labs.optimise.part import Part, in_turns
from shoal_labs.optimise.straggler import (
    BASE,
    CONDITIONS,
    STALENESS,
    TARGET,
    WAYS,
    StragglerMeasurements,
    Watched,
)
from shoal_labs.page.bars import GAP, Bar, BarPanel, draw_bars
from shoal_labs.page.bars import Part as BarPart
from shoal_labs.page.page import source
from shoal_labs.page.pictures import Draw
from shoal_labs.page.table import PageTable
from shoal_labs.page.template import Content
from shoal_labs.words import Words, counted

# ── claims ──


def _faster(name: str, fast: str, slow: str, condition: str = "always") -> Pair[StragglerMeasurements]:
    """One way processes at least a tenth more samples per second than another."""
    return in_turns(
        name,
        "fast > 1.1 * slow",
        lambda m: (m.ways[condition, fast].rates, m.ways[condition, slow].rates),
    )


def _against_sum(name: str, rule: str, way: str) -> Pair[StragglerMeasurements]:
    """The samples per second of a way, and Σ 1/tᵢ of the same run."""
    return in_turns(name, rule, lambda m: (m.ways["always", way].rates, m.ways["always", way].ideals))


def _bound(measured: StragglerMeasurements) -> dict[str, Number]:
    """Under ssp, every gradient knows all updates that are more than s steps old."""
    updates = sum(len(measured.ways[condition, "ssp"].updates) for condition in CONDITIONS)
    return {"broken": sum(measured.bound_broken.values()), "updates": updates, "bound": STALENESS}


def _stale(measured: StragglerMeasurements) -> Paired:
    """Under asp, the mean staleness of the slow worker's updates and of the others', epoch by epoch."""
    asp, slow = measured.ways["always", "asp"], measured.plan.slow
    others = [rank for rank in range(measured.plan.workers) if rank != slow]
    stale = [asp.staleness_of(ranks, measured.epoch_steps) for ranks in ([slow], others)]
    count = min(map(len, stale))
    return by_rounds(*(each[:count] for each in stale))


def asp_learns_sooner(measured: StragglerMeasurements) -> Finding:
    """With a straggler, asp reaches an accuracy sooner than bsp; runs of both took turns."""
    asp, bsp = (_times_to_target(measured.ways["always", way]) for way in ("asp", "bsp"))
    reached = [(a, b) for a, b in zip(asp, bsp, strict=True) if a is not None and b is not None]
    numbers: dict[str, Number] = {"target": 100 * TARGET, "asp": "–", "bsp": "–"}
    if len(reached) < len(asp):
        return Finding("asp_learns_sooner", numbers, "undecided", timed=True)
    times = by_rounds(*zip(*reached, strict=True))
    numbers |= {"asp": times.first, "bsp": times.second}
    return Finding("asp_learns_sooner", numbers, first_lower(times), times.pairs)


def _times_to_target(way: Watched) -> list[float | None]:
    """Of every run of a way."""
    found = [run.time_to(TARGET) for run in (way, *way.again)]
    return [each.value if each else None for each in found]


CLAIMS: tuple[Claim[StragglerMeasurements], ...] = (
    _against_sum("slowest_sets_the_pace", "1.1 * bsp < ideal", "bsp"),
    _faster("asp_is_faster", "asp", "bsp"),
    _against_sum("asp_reaches_the_sum", "asp > 0.8 * ideal", "asp"),
    _faster("backup_is_faster", "backup", "bsp"),
    _faster("balanced_is_faster", "balanced", "bsp"),
    _faster("ssp_waits_for_a_constant_straggler", "asp", "ssp"),
    _faster("ssp_absorbs_passing_delays", "ssp", "bsp", "passing"),
    Bound("ssp_keeps_its_bound", "broken == 0 and updates > 0", _bound),
    Pair("slow_worker_is_stalest", "slow > others", _stale),
    Computed("asp_learns_sooner", asp_learns_sooner),
)


# ── places of the page ──


def content(measured: StragglerMeasurements) -> Content:
    """Everything but figures and findings."""
    plan, again = measured.plan, measured.plan.size.again_epochs
    values = {
        "model": plan.model.name,
        "workers": plan.workers,
        "others": plan.workers - 1,
        "batch": straggler.BATCH_SIZE,
        "lr": straggler.LR,
        "momentum": straggler.MOMENTUM,
        "samples": measured.samples,
        "data": plan.data.name,
        "epochs": counted("epoch", plan.size.epochs),
        "all": straggler.SPEED_OF_ALL,
        "rank": plan.slow,
        "slow": plan.slow,
        "slowdown": straggler.SLOWDOWN,
        "delay": straggler.DELAY_MS,
        "bound": STALENESS,
        "target": 100 * TARGET,
    }
    return Content(
        each={"straggler": [values], "again": [{"epochs": counted("epoch", again)}] * bool(again)},
        tables={"stragglers": _throughput(measured), "staleness": _staleness(measured)},
        code={"release": source(Ledger.release), "balanced": source(balanced)},
    )


def _throughput(measured: StragglerMeasurements) -> PageTable:
    """Every way under every condition."""
    columns = {"straggler": "", "way": "", "samples per second (1/s)": ".0f", "sum of 1/t (1/s)": ".0f"}
    columns |= {"reached (%)": ".0f", "time to target (s)": ".1f", "last accuracy (%)": ".1f"}
    return PageTable(
        columns,
        [
            [
                Phrase(f"straggler.{condition}"),
                Phrase(f"way.{way}"),
                watched.rate,
                watched.ideal.value,
                100 * watched.rate.value / watched.ideal.value,
                watched.time_to(TARGET),
                of_samples(watched.accuracies[-1], measured.validation_samples).scaled(100),
            ]
            for (condition, way), watched in measured.ways.items()
        ],
    )


def _staleness(measured: StragglerMeasurements) -> PageTable:
    """Staleness of all updates, and of the slow worker's."""
    columns = {"straggler": "", "way": "", "mean staleness": ".2f", "largest staleness": "d"}
    columns |= {"mean of the slow worker": ".2f", "updates of the slow worker": ",d", "updates": ",d"}
    return PageTable(
        {**columns, "dropped pushes": ",d"},
        [
            [
                Phrase(f"straggler.{condition}"),
                Phrase(f"way.{way}"),
                watched.mean_staleness,
                max(watched.staleness),
                sum(own) / len(own) if own else None,
                len(own),
                len(watched.updates),
                watched.dropped,
            ]
            for (condition, way), watched in measured.ways.items()
            if watched.updates
            for own in [[each.staleness for each in watched.updates if each.rank == measured.plan.slow]]
        ],
    )


def tables(measured: StragglerMeasurements) -> dict[str, Records]:
    """What no table of the page shows: every epoch, and how many updates have which staleness."""
    return {
        "straggler_epochs": [
            {
                "straggler": condition,
                "way": way,
                "epoch": epoch,
                "training time (s)": seconds,
                "validation accuracy (1)": accuracy,
            }
            for (condition, way), watched in measured.ways.items()
            for epoch, (seconds, accuracy) in enumerate(
                zip(watched.seconds, watched.accuracies, strict=True), start=1
            )
        ],
        "staleness_runs": [
            {"straggler": condition, "way": way, "staleness (updates)": staleness, "updates": count}
            for (condition, way), watched in measured.ways.items()
            if watched.updates
            for staleness, count in watched.staleness.items()
        ],
    }


# ── figures ──

LOOKS: dict[str, tuple[str, Dash, str]] = {
    "bsp": ("black", "solid", "o"),
    "ssp": ("blue", "dashed", "s"),
    "asp": ("vermilion", "solid", "^"),
    "backup": ("green", "dash-dotted", "D"),
    "balanced": ("purple", "dashed", "v"),
}
STALE = ("ssp", "asp")
"""The ways with stale updates."""


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
    parts = [BarPart(words("figure.useful"), "blue"), BarPart(words("figure.lost"), "orange", "////")]
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


def figures(measured: StragglerMeasurements) -> dict[str, Draw]:
    """The figures by name."""
    drawn = {"throughput": throughput_figure, "learning": learning_figure, "staleness": staleness_figure}
    return {name: partial(figure, measured) for name, figure in drawn.items()}


STRAGGLER = Part(
    plan=straggler.plan_for,
    runs=straggler.StragglerPlan.runs,
    measure=straggler.measure,
    claims=CLAIMS,
    figures=figures,
    content=content,
    tables=tables,
)
