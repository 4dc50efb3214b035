"""The page of pruning: claims, places, figure."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from shoal.prune.masks import keep_best
from shoal.report.canvas import Drawing
from shoal.report.curves import Dash, Line, Panel, Style, draw_apart
from shoal.report.findings import Finding, Number, inside_run, over_seeds
from shoal.report.finished_runs import Array
from shoal.report.paired import FEWEST, Paired, by_seeds
from shoal.report.plain_tables import Records
from shoal.words import Phrase
from shoal_labs.claims import Claim, Computed, Pair
from shoal_labs.numbers import whether
from shoal_labs.optimise import pruning
from shoal_labs.optimise.part import Part, in_turns
from shoal_labs.optimise.pruning import BATCH_SIZE, KINDS, USUAL, Pruned, PruningMeasurements
from shoal_labs.page.page import source
from shoal_labs.page.table import Cell, PageTable
from shoal_labs.page.template import Content
from shoal_labs.words import Words, counted

POINT = 0.01
"""The accuracy that pruning may cost."""

# ── claims ──


def _usual(measured: PruningMeasurements, kind: str) -> Pruned:
    """At the sparsity that the claims are about."""
    return measured.pruned[kind, USUAL[kind]]


def _survives(measured: PruningMeasurements) -> Paired:
    """Accuracies of the whole and of the pruned network, both fine-tuned alike."""
    return by_seeds(measured.tuned["weights"], _usual(measured, "weights").accuracies)


def _too_much(measured: PruningMeasurements) -> Paired:
    """Accuracies with the fewest and with the most channels removed."""
    some, *_, most = measured.of_kind("channels")
    return by_seeds(some.accuracies, most.accuracies)


def _speed(name: str, rule: str, kind: str) -> Pair[PruningMeasurements]:
    """Seconds of a forward pass, in turns; from this speed-up on a network counts as faster."""

    def also(measured: PruningMeasurements) -> dict[str, Number]:
        return {"speedup": measured.speedup(_usual(measured, kind)), "sparsity": 100 * USUAL[kind]}

    return in_turns(name, rule, lambda m: (m.forward_s, _usual(m, kind).forward_s), also)


def tuning_recovers(measured: PruningMeasurements) -> Finding:
    """After channels are removed, fine-tuning raises the accuracy with every seed.

    Accuracies right after pruning differ much from seed to seed, and so do the gains: each is judged by itself.
    """
    pruned = _usual(measured, "channels")
    gains = [after - before for after, before in zip(pruned.accuracies, pruned.at_once, strict=True)]
    numbers: dict[str, Number] = {
        "at_once": over_seeds(pruned.at_once).scaled(100),
        "tuned": pruned.accuracy.scaled(100),
        "least": 100 * min(gains),
        "most": 100 * max(gains),
        "sparsity": 100 * pruned.sparsity,
    }
    all_gain, none_gains = min(gains) >= POINT, max(gains) < POINT
    decided = len(gains) >= FEWEST and min(gains) < max(gains) and (all_gain or none_gains)
    return Finding("tuning_recovers", numbers, whether(all_gain) if decided else "undecided")


CLAIMS: tuple[Claim[PruningMeasurements], ...] = (
    Pair(
        "accuracy_survives",
        f"whole - pruned <= {POINT}",
        _survives,
        lambda m: {
            "loss": 100 * _survives(m).difference.value,
            "sparsity": 100 * USUAL["weights"],
            "point": 100 * POINT,
        },
        scale=100,
    ),
    _speed("zeros_are_not_faster", "whole < 1.1 * pruned", "weights"),
    _speed("channels_are_faster", "whole > 1.1 * pruned", "channels"),
    Computed("tuning_recovers", tuning_recovers),
    Pair(
        "too_much_costs",
        "some > most",
        _too_much,
        lambda m: {"loss": 100 * _too_much(m).difference.value, "sparsity": 100 * KINDS["channels"][-1]},
        scale=100,
    ),
)


# ── places of the page ──


def content(measured: PruningMeasurements) -> Content:
    """Everything but the figure and findings."""
    plan, size = measured.plan, measured.plan.size
    values = {
        "model": plan.model.name,
        "data": plan.data.name,
        "values": measured.num_values,
        "epochs": counted("epoch", size.epochs),
        "finetune": counted("epoch", size.finetune),
        "batch": BATCH_SIZE,
        "seeds": plan.seeds,
        "rounds": len(measured.forward_s),
        "ms": inside_run([1e3 * each for each in measured.forward_s]),
    }
    return Content(
        each={"pruning": [values]},
        tables={"pruning": _pruning(measured)},
        code={"prune": source(keep_best)},
    )


def _pruning(measured: PruningMeasurements) -> PageTable:
    """Accuracy, speed and size by sparsity."""
    columns = {
        "pruned": "",
        "sparsity (%)": ".0f",
        "accuracy (%)": ".2f",
        "accuracy before tuning (%)": ".2f",
    }
    columns |= {"values": ",d", "size (KiB)": ".0f", "file (KiB)": ".0f", "speed-up (1)": ".2f"}
    whole = over_seeds(measured.whole).scaled(100)
    sizes = [measured.num_values, measured.num_bytes / 1024, measured.file_bytes / 1024]
    rows: list[Sequence[Cell]] = [
        [Phrase(f"pruned.{kind}"), 0, over_seeds(tuned).scaled(100), whole, *sizes, 1.0]
        for kind, tuned in measured.tuned.items()
    ]
    rows += [
        [
            Phrase(f"pruned.{each.kind}"),
            100 * each.sparsity,
            each.accuracy.scaled(100),
            over_seeds(each.at_once).scaled(100),
            each.num_values,
            each.num_bytes / 1024,
            each.file_bytes / 1024,
            measured.speedup(each),
        ]
        for each in measured.pruned.values()
    ]
    return PageTable(columns, rows)


def tables(measured: PruningMeasurements) -> dict[str, Records]:
    """What no table of the page shows: the accuracies of every seed."""
    return {
        "pruning_runs": [
            {
                "pruned": pruned.kind,
                "sparsity (1)": pruned.sparsity,
                "seed": seed,
                "accuracy before (1)": before,
                "accuracy fine-tuned without pruning (1)": whole_tuned,
                "accuracy at once (1)": at_once,
                "accuracy fine-tuned (1)": tuned,
            }
            for pruned in measured.pruned.values()
            for seed, before, whole_tuned, at_once, tuned in zip(
                measured.plan.seeds,
                measured.whole,
                measured.tuned[pruned.kind],
                pruned.at_once,
                pruned.accuracies,
                strict=True,
            )
        ]
    }


# ── figure ──

LOOKS: dict[str, tuple[str, Dash, str]] = {
    "weights": ("blue", "solid", "o"),
    "channels": ("vermilion", "dashed", "s"),
}


def pruning_figure(measured: PruningMeasurements, words: Words, font: str | None) -> Drawing:
    """Each kind of pruning from the whole network on, all fine-tuned alike."""

    def accuracy(kind: str) -> Line:
        whole = 100 * np.array(measured.tuned[kind])
        values = np.stack([whole, *(100 * np.array(each.accuracies) for each in measured.of_kind(kind))])
        return Line(_style(kind, words), _x(kind), values.mean(1), values.min(1), values.max(1))

    def line(kind: str, values: list[float]) -> Line:
        return Line(_style(kind, words), _x(kind), np.array(values))

    def size(each: Pruned) -> float:
        return each.num_bytes / 1024

    panels = [
        (words("figure.accuracy"), [accuracy(kind) for kind in KINDS]),
        (
            words("figure.speedup"),
            [
                line(kind, [1.0, *(measured.speedup(each).value for each in measured.of_kind(kind))])
                for kind in KINDS
            ],
        ),
        (
            words("figure.size"),
            [line(kind, [measured.num_bytes / 1024, *map(size, measured.of_kind(kind))]) for kind in KINDS],
        ),
    ]
    return draw_apart(
        [
            Panel(
                "",
                words("figure.sparsity"),
                label,
                lines,
                log_x=False,
                log_y=False,
                from_zero=label == words("figure.size"),
            )
            for label, lines in panels
        ],
        font=font,
    )


def _x(kind: str) -> Array:
    return 100 * np.array([0.0, *KINDS[kind]])


def _style(kind: str, words: Words) -> Style:
    colour, dash, marker = LOOKS[kind]
    return Style(words(f"pruned.{kind}"), colour, dash, marker)


PRUNING = Part(
    plan=pruning.plan_for,
    measure=pruning.measure,
    claims=CLAIMS,
    figures=lambda measured: {"pruning": partial(pruning_figure, measured)},
    content=content,
    tables=tables,
)
