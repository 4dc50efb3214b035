"""The lab's claims."""

import math
from collections.abc import Callable, Mapping

from shoal.kit.base import Phrase
from shoal.kit.findings import (
    STUDENT,
    Finding,
    Measured,
    Number,
    Paired,
    Verdict,
    accuracy_over,
    by_rounds,
    by_seeds,
    of_samples,
)
from shoal_labs.claims import Bound, Claim, Computed, Pair
from shoal_labs.lab2.measure import BYTES_PER_ELEMENT, Lab2Measurements, stage_times
from shoal_labs.lab2.plan import FAULTS, RULES, SLOWDOWN
from shoal_labs.numbers import whether

ROUNDING = 1e-5
"""A relative difference of weights or sums below this is rounding in float32, carried through a few steps."""
PARTLY = 0.1
"""A rule that loses at most this much accuracy to a faulty worker tolerates it."""
RUINED = 0.5
"""A training that keeps less than this part of its accuracy is ruined."""

Compare = Callable[[Lab2Measurements], Paired]


def _losses(first: str, second: str) -> Compare:
    """The losses at the end of two trainings, seed by seed."""
    return lambda m: by_seeds(m.learnt[first].losses, m.learnt[second].losses)


def _turns(part: str, first: str, second: str) -> Compare:
    """Two runs that took turns."""
    return lambda m: by_rounds(
        *([getattr(pace, part).value for pace in m.turns[name]] for name in (first, second))
    )


def _krum(m: Lab2Measurements) -> Paired:
    return by_seeds(*(m.faulty["none", rule].accuracies for rule in ("mean", "krum")))


def _changes(m: Lab2Measurements) -> Paired:
    """How much the loss changes between sum and mean, seed by seed: of Adam and of SGD."""
    return by_seeds(
        *(
            [
                abs(a - b)
                for a, b in zip(m.learnt[f"{name}-sum"].losses, m.learnt[f"{name}-mean"].losses, strict=True)
            ]
            for name in ("adam", "sgd")
        )
    )


def _difference(compared: str) -> Callable[[Lab2Measurements], Mapping[str, Number]]:
    return lambda m: {"difference": m.differences[compared]}


def _steps(m: Lab2Measurements) -> dict[str, int]:
    return {"steps": m.plan.size.learn_steps}


def _same_sum(m: Lab2Measurements) -> dict[str, Number]:
    errors, same = zip(*m.sums.values(), strict=True)
    return {"branches": len(errors), "worst": max(errors), "same": all(same)}


def _bytes_sent(m: Lab2Measurements) -> dict[str, Number]:
    """The ring's busiest worker sends 2(W − 1)/W buffers, rank 0 of the central way W − 1."""
    messages = {name: record for name, record in m.recorded.items() if record.predicted is not None}
    ring, central = (
        messages[name].sent / BYTES_PER_ELEMENT / m.parameters for name in ("by:ring", "by:central")
    )
    right = sum(record.sent == record.predicted for record in messages.values())
    return {"ring": ring, "central": central, "right": right, "algorithms": len(messages)}


# ── one faulty worker ──


def breaks_the_mean(fault: str, clean: Measured, faulty: Measured | None) -> Finding:
    """With the sum, one faulty worker lowers the accuracy, or ruins the training."""
    ruined = faulty is None or faulty.value < RUINED * clean.value
    harm = Phrase("harm.ruins") if ruined else Phrase("harm.lowers", {"points": 100 * PARTLY})
    numbers = {**_percent(clean, faulty), "harm": harm}
    return Finding(f"{fault}_breaks_the_mean", numbers, _loses(clean, faulty))


def tolerates(rule: str, clean: Measured, faulty: Measured | None) -> Finding:
    """A rule loses little accuracy, whatever is wrong with one worker."""
    verdicts: dict[Verdict, Verdict] = {"holds": "fails", "fails": "holds", "undecided": "undecided"}
    return Finding(f"{rule}_tolerates", _percent(clean, faulty), verdicts[_loses(clean, faulty)])


def _percent(clean: Measured, faulty: Measured | None) -> dict[str, Number]:
    shown = "–" if faulty is None else Phrase("faults.accuracy", {"percent": faulty.scaled(100)})
    return {"clean": clean.scaled(100), "faulty": shown}


def _loses(clean: Measured, faulty: Measured | None) -> Verdict:
    """Whether a faulty worker costs more accuracy than a rule may lose; a run that was stopped has none."""
    if faulty is None:
        return "holds"
    lost = clean.value - faulty.value - PARTLY
    noise = STUDENT[-1] * math.hypot(clean.spread, faulty.spread)
    return "undecided" if abs(lost) <= noise else whether(lost > 0)


def _accuracies(m: Lab2Measurements, rule: str, *faults: str) -> tuple[Measured, Measured | None]:
    """Without a faulty worker, and the lowest with one; None if any run was stopped."""
    found = [m.faulty[fault, rule] for fault in faults]
    clean = accuracy_over(m.faulty["none", rule].accuracies, m.test_samples)
    if any(each.stopped for each in found):
        return clean, None
    return clean, of_samples(min(each.accuracies[0] for each in found), m.test_samples)


def _breaks(fault: str) -> Claim[Lab2Measurements]:
    return Computed(
        f"{fault}_breaks_the_mean", lambda m: breaks_the_mean(fault, *_accuracies(m, "mean", fault))
    )


def _tolerates(rule: str) -> Claim[Lab2Measurements]:
    return Computed(f"{rule}_tolerates", lambda m: tolerates(rule, *_accuracies(m, rule, *FAULTS[1:])))


def _contest(name: str, rule: str) -> Pair[Lab2Measurements]:
    """Branches that took turns."""
    return Pair(name, rule, lambda m: m.contests[name])


CLAIMS: tuple[Claim[Lab2Measurements], ...] = (
    # the collectives
    Bound("same_sum", f"worst <= {ROUNDING} and same", _same_sum),
    Bound(
        "labels",
        "right == branches",
        lambda m: {
            "right": sum(record.as_labelled for record in m.recorded.values()),
            "branches": len(m.recorded),
        },
    ),
    Bound("bytes_sent", "right == algorithms", _bytes_sent),
    _contest("all_reduce_beats_gather", "all_reduce < gather"),
    _contest("all_reduce_beats_all_gather", "all_reduce < all_gather"),
    _contest("waiting_is_less", "wait < move"),
    # what is aggregated, and how
    Bound(
        "sum_is_scaled_mean",
        f"difference <= {ROUNDING}",
        _difference("sum"),
        lambda m: {"bitwise": m.differences["sum"] == 0, "workers": m.plan.workers},
    ),
    Pair(
        "sum_learns_faster",
        "mean > sum",
        _losses("sgd-mean", "sgd-sum"),
        lambda m: {"lead": _losses("sgd-mean", "sgd-sum")(m).difference.value, **_steps(m)},
    ),
    Pair("adam_indifferent", "adam < sgd", _changes),
    Bound("parameters_equal_gradients", f"difference <= {ROUNDING}", _difference("parameters")),
    Bound("adam_parameters_differ", f"difference > {ROUNDING}", _difference("adam-parameters")),
    # stages
    Bound("stages_equal", f"difference <= {ROUNDING}", _difference("stages")),
    Pair("stages_faster", "first > second", lambda m: stage_times(m.link_stage_steps)),
    Pair("combine_stages_learn", "mean > stages", _losses("sgd-mean", "sgd-stages"), _steps),
    # the bottleneck
    Pair("slow_worker_keeps_all_waiting", "slow > even", _turns("wait_ms", "compute", "even")),
    Pair(
        "no_collective_helps",
        "shortest > longest",
        lambda m: m.contests["no_collective_helps"],  # beside the shortest: half of the longest
        lambda m: {"longest": m.contests["no_collective_helps"].second.scaled(2)},
    ),
    Pair("slow_link_moves", "slow > even", _turns("move_ms", "link", "even")),
    _contest("slow_link_choice", "gather > ring"),
    Pair(
        "throughput_falls",
        "slow < even",
        _turns("samples_per_s", "compute", "even"),
        lambda m: {"ratio": _turns("samples_per_s", "compute", "even")(m).ratio, "slowdown": SLOWDOWN},
    ),
    Pair(
        "balance_brings_back",
        "balanced > slow",
        _turns("samples_per_s", "balanced", "compute"),
        lambda m: {"ratio": _turns("samples_per_s", "balanced", "compute")(m).ratio},
    ),
    Bound(
        "balance_changes_nothing",
        f"difference <= {100 * ROUNDING}",
        _difference("balanced"),
        lambda m: {"steps": m.plan.size.equal_steps},
    ),
    # uneven batches
    Bound(
        "exact_on_uneven",
        f"exact <= {ROUNDING} and weighted <= {ROUNDING}",
        lambda m: {
            "exact": m.differences["uneven-exact"],
            "weighted": m.differences["uneven-weighted_mean"],
        },
    ),
    Bound(
        "mean_of_means_differs",
        f"difference > {ROUNDING}",
        _difference("uneven-mean"),
        lambda m: {"exact": m.differences["uneven-exact"]},
    ),
    Pair(
        "mean_of_means_costs",
        "means > exact",
        _losses("uneven-mean", "uneven-exact"),
        lambda m: {"lead": _losses("uneven-mean", "uneven-exact")(m).difference.value},
    ),
    # one faulty worker
    Bound("nan_is_stopped", "stopped", lambda m: {"stopped": bool(m.faulty["nan", "mean"].stopped)}),
    *map(_breaks, ("huge", "flip")),
    *(_tolerates(rule) for rule in RULES if rule != "mean"),
    Pair(
        "krum_costs",
        "mean > krum",
        _krum,
        lambda m: {"lead": 100 * _krum(m).difference.value},
        scale=100,
    ),
)
