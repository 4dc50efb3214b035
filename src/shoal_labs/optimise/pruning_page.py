"""The page of pruning: claims, places, figure."""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean

import numpy as np

from shoal.kit.base import Phrase
from shoal.kit.figures import Dash, Drawing, Line, Panel, Style, draw_apart
from shoal.kit.findings import FEWEST, Finding, Number, Paired, by_seeds, inside_run, over_seeds
from shoal.kit.page import Records
from shoal.kit.runs import Array
from shoal.kit.strategies import keep_best
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
        each={"pruning": [values], "few_seeds": [{"few": size.few}] * bool(size.few)},
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
    seeds = list(zip(measured.plan.seeds, measured.whole, strict=True))
    tuned = [(kind, 0.0, found, found) for kind, found in measured.tuned.items()]
    tuned += [(each.kind, each.sparsity, each.at_once, each.accuracies) for each in measured.pruned.values()]
    return {
        "pruning_runs": [
            {
                "pruned": kind,
                "sparsity (1)": sparsity,
                "seed": seed,
                "accuracy before (1)": before,
                "accuracy at once (1)": at_once if sparsity else before,
                "accuracy fine-tuned (1)": accuracy,
            }
            for kind, sparsity, once, accuracies in tuned
            for (seed, before), at_once, accuracy in zip(seeds, once, accuracies, strict=False)
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
        seeds = [measured.tuned[kind], *(each.accuracies for each in measured.of_kind(kind))]
        mean, low, high = (100 * np.array([of(each) for each in seeds]) for of in (fmean, min, max))
        return Line(_style(kind, words), _x(kind), mean, low, high)

    def line(kind: str, whole: float, of: Callable[[Pruned], float]) -> Line:
        values = [whole, *map(of, measured.of_kind(kind))]
        return Line(_style(kind, words), _x(kind), np.array(values))

    def panel(label: str, lines: list[Line], from_zero: bool = False) -> Panel:
        names = words("figure.sparsity"), words(f"figure.{label}")
        return Panel("", *names, lines, log_x=False, log_y=False, from_zero=from_zero)

    longest = 100 * max(map(max, KINDS.values()))
    same = Style(words("figure.same_speed"), "grey", width=1.2)
    speeds = [line(kind, 1.0, lambda each: measured.speedup(each).value) for kind in KINDS]
    sizes = [line(kind, measured.num_bytes / 1024, lambda each: each.num_bytes / 1024) for kind in KINDS]
    return draw_apart(
        [
            panel("accuracy", [accuracy(kind) for kind in KINDS]),
            panel("speedup", [Line(same, np.array([0.0, longest]), np.ones(2)), *speeds]),
            panel("size", sizes, from_zero=True),
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
    runs=pruning.PruningPlan.runs,
    measure=pruning.measure,
    claims=CLAIMS,
    figures=lambda measured: {"pruning": partial(pruning_figure, measured)},
    content=content,
    tables=tables,
)
