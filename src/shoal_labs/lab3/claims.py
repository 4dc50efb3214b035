"""The lab's claims."""

from collections.abc import Callable, Mapping

from shoal.kit.base import Phrase
from shoal.kit.division import expected_coverage_of_sampling
from shoal.kit.findings import (
    SPREADS,
    Finding,
    Measured,
    Number,
    Paired,
    Verdict,
    by_rounds,
    by_seeds,
    first_higher,
)
from shoal_labs.claims import Bound, Claim, Computed, Pair
from shoal_labs.lab3.batches import LARGEST, SMALLEST, rate_of
from shoal_labs.lab3.measure import Lab3Measurements, Learnt
from shoal_labs.lab3.plan import ALL_CORES, BATCH_SIZE, ONE_CORE, PARTITIONS, SLOW_RANDOM
from shoal_labs.numbers import scientific, whether

ROUNDING = 1e-5
"""A relative difference of weights below this is rounding in float32, carried through a few steps."""
MARGIN = 0.03
"""A loss of accuracy up to this margin does not count."""
NEAR = 0.02
"""A coverage this close to its formula, or within its spread, counts as equal to it."""

VARIANCE_NEAR = 0.25
"""The variance of a batch's gradient may be this part away from 1/b, in proportion to the smallest batch's."""

M = Lab3Measurements


# ── one machine, coverage ──


def _from_single(measured: M) -> dict[str, Number]:
    apart = {
        workers: {"workers": workers, "value": scientific(value)}
        for workers, value in measured.from_single.items()
    }
    return {
        "worst": max(measured.from_single.values()),
        "differences": tuple(Phrase("each.workers", values) for values in apart.values()),
        "steps": measured.plan.size.equal_steps,
    }


def _from_same_order(measured: M) -> dict[str, Number]:
    return {
        "worst": max(measured.from_same_order.values()),
        "divisions": len(measured.from_same_order),
        "workers": measured.plan.most,
        "steps": measured.plan.size.equal_steps,
    }


def _covering(measured: M) -> dict[str, Number]:
    """How many partitions go through every sample exactly once, with every number of workers and every seed."""
    workers = measured.plan.workers
    once = [all(seen.once for w in workers for seen in measured.divided[name, w].seen) for name in PARTITIONS]
    return {"right": sum(once), "partitions": len(once)}


def sampling_covers(measured: M) -> Finding:
    """Sampling with replacement sees 1 − 1/e of the data set in an epoch."""
    num_samples = measured.num_samples["train"]
    found = measured.divided["sampling", measured.plan.most].coverage
    predicted = expected_coverage_of_sampling(num_samples, num_samples)
    numbers = {"measured": found.scaled(100), "predicted": 100 * predicted}
    return Finding("sampling_covers", numbers, whether(_near(found, predicted)))


def covers(claim: str, way: str) -> Callable[[M], Finding]:
    """A wrong sampler sees as much of the data set in an epoch as its formula says."""

    def judge(measured: M) -> Finding:
        own = {workers: measured.own[way, workers] for workers in measured.plan.workers}
        shown = tuple(
            Phrase(
                "each.coverage",
                {"workers": w, "measured": each.first_coverage.scaled(100), "formula": 100 * each.predicted},
            )
            for w, each in own.items()
        )
        right = all(_near(each.first_coverage, each.predicted) for each in own.values())
        return Finding(claim, {"measured": shown}, whether(right))

    return judge


def _near(measured: Measured, predicted: float) -> bool:
    return abs(measured.value - predicted) <= max(NEAR, SPREADS * measured.spread)


# ── learning ──


def _learnt(name: str) -> Callable[[M], Learnt]:
    """A division with the largest number of workers, one machine, or a way of the lab's own loop."""

    def learnt(measured: M) -> Learnt:
        most = measured.plan.most
        if name == "single":
            return measured.single
        own = measured.own.get((name, most))
        return own.learnt if own else measured.divided[name, most].learnt

    return learnt


def _accuracies(first: str, second: str) -> Callable[[M], Paired]:
    return lambda m: by_seeds(_learnt(first)(m).test_accuracies, _learnt(second)(m).test_accuracies)


def _most(measured: M) -> dict[str, Number]:
    return {"workers": measured.plan.most}


def _with_margin(measured: M) -> dict[str, Number]:
    return {"workers": measured.plan.most, "margin": 100 * MARGIN}


def _no_worse(name: str, reference: str, other: str) -> Pair[M]:
    """The second ends no less accurate than the first."""
    rule = f"reference - other <= {MARGIN}"
    return Pair(name, rule, _accuracies(reference, other), _with_margin, scale=100)


def _costs(name: str, wrong: str) -> Computed[M]:
    """A wrong sampler costs accuracy."""

    def judge(measured: M) -> Finding:
        pair = _accuracies("right", wrong)(measured)
        shown = pair.scaled(100)
        numbers = {"right": shown.first, "wrong": shown.second, **_with_margin(measured)}
        return Finding(name, numbers, costs(pair, MARGIN), pair.pairs)

    return Computed(name, judge)


def costs(lost: Paired, margin: float) -> Verdict:
    """Whether the second number is lower than the first. A loss that is certainly within the margin is none.

    >>> noises = 0.001, 0.005, 0.1
    >>> pairs = [by_seeds([0.94] * 6, [0.935 + noise * (-1) ** i for i in range(6)]) for noise in noises]
    >>> [costs(pair, margin=0.03) for pair in pairs]
    ['holds', 'fails', 'undecided']
    """
    if first_higher(lost) != "undecided" or lost.difference.basis == "none":
        return first_higher(lost)
    return "fails" if lost.difference.value + SPREADS * lost.difference.spread <= margin else "undecided"


# ── batch size ──


def _variances(measured: M) -> dict[str, Number]:
    variances = {size: batch.variance.value for size, batch in measured.batches.items()}
    smallest = SMALLEST * variances[SMALLEST]
    shown = [{"batch": size, "value": f"{value:.2f}"} for size, value in variances.items()]
    apart = max(abs(size * value / smallest - 1) for size, value in variances.items())
    phrases = tuple(Phrase("each.batch", values) for values in shown)
    return {"apart": apart, "percent": 100 * apart, "variances": phrases}


def _batches(measured: M) -> dict[str, Number]:
    small, large = measured.batches[SMALLEST], measured.batches[LARGEST]
    return {
        "few": SMALLEST,
        "many": LARGEST,
        "small": small.accuracy("fixed").scaled(100),
        "rate": rate_of(SMALLEST),
        "higher": rate_of(LARGEST),
        "times": small.variance.value / large.variance.value,
    }


# ── speed ──


def _rounds_ms(measured: M, way: str) -> tuple[float, ...]:
    """Of the number of workers that has a core for each."""
    return measured.paces[measured.plan.fitting][way].rounds_ms


def _uneven(measured: M) -> Paired:
    rounds = (_rounds_ms(measured, way) for way in ("dirichlet-0.1", "random"))
    return by_rounds(*rounds).scaled(BATCH_SIZE)


def _largest_part(measured: M) -> dict[str, Number]:
    fitting = measured.plan.fitting
    largest = measured.divided["dirichlet-0.1", fitting].seen[0].largest_part
    return {"largest": 100 * largest, "workers": fitting}


def _faster(
    name: str, one: str, several: str = "global", when: Callable[[M], bool] = lambda _: True
) -> Pair[M]:
    """Whether the second takes less time per sample; shown as samples per second."""

    def pair(measured: M) -> Paired:
        return by_rounds(_rounds_ms(measured, one), _rounds_ms(measured, several))

    def also(measured: M) -> Mapping[str, Number]:
        times = pair(measured)
        return {
            "one": 1e3 / times.first.value,
            "several": 1e3 / times.second.value,
            "ratio": times.ratio,
            "spread": 100 * max(each.spread / each.value for each in (times.first, times.second)),
            "workers": measured.plan.fitting,
            "gpus": measured.plan.gpus,
        }

    return Pair(name, "one > several", pair, also, when=when)


def communication_limits(measured: M) -> Finding:
    """What is missing to the ideal speed-up is mostly communication. Times of a step, in ms."""
    plan, paces = measured.plan, measured.paces[measured.plan.fitting]
    one, several = paces[ONE_CORE], paces["global"]
    ideal = min(plan.fitting, plan.gpus or plan.cores)
    steps = by_rounds(several.rounds_ms, [each / ideal for each in one.rounds_ms]).scaled(BATCH_SIZE)
    missing = steps.first.value - steps.second.value
    communication_ms = several.communication * several.step_ms.value
    numbers = {
        "ideal": ideal,
        "reached": one.step_ms.value / steps.first.value,
        "missing": missing,
        "communication": communication_ms,
        "several": steps.first,
    }
    decided = first_higher(steps) == "holds"
    verdict = whether(communication_ms > missing / 2) if decided else "undecided"
    return Finding("communication_limits", numbers, verdict, steps.pairs)


def _crowded(measured: M) -> Paired:
    """The time of many workers and of few as multiples of one process's, each in the rounds of its own."""
    plan = measured.plan
    many, few = (_against_one(measured, workers) for workers in (plan.most, plan.fitting))
    count = min(len(many), len(few))
    return by_rounds(many[:count], few[:count])


def _against_one(measured: M, workers: int) -> list[float]:
    paces = measured.paces[workers]
    rounds = zip(paces["global"].rounds_ms, paces[ONE_CORE].rounds_ms, strict=True)
    return [several / one for several, one in rounds]


def _crowded_numbers(measured: M) -> dict[str, Number]:
    plan = measured.plan
    steps = {
        name: measured.paces[workers]["global"].step_ms
        for name, workers in (("fitting", plan.fitting), ("crowded", plan.most))
    }
    return {**steps, "few": plan.fitting, "many": plan.most, "cores": plan.cores}


CLAIMS: tuple[Claim[M], ...] = (
    Bound("global_equals_one", f"worst <= {ROUNDING}", _from_single),
    Bound("order_decides", f"worst <= {ROUNDING}", _from_same_order),
    Bound("partitions_cover_once", "right == partitions", _covering),
    Computed("sampling_covers", sampling_covers),
    Computed("range_covers", covers("range_covers", "range")),
    Computed("rank_seed_covers", covers("rank_seed_covers", "rank-seed")),
    _no_worse("random_no_worse", "single", "random"),
    _no_worse("sampling_no_worse", "random", "sampling"),
    _no_worse("label_no_worse", "random", "label"),
    _no_worse("dirichlet_no_worse", "random", "dirichlet-0.1"),
    Pair(
        "seldom_label_costs", "random > label", _accuracies("seldom-random", "seldom-label"), _most, scale=100
    ),
    Bound("variance_falls", f"apart <= {VARIANCE_NEAR}", _variances),
    Pair(
        "large_batch_costs",
        "small > large",
        lambda m: by_seeds(m.batches[SMALLEST].fixed, m.batches[LARGEST].fixed),
        _batches,
        scale=100,
    ),
    Pair(
        "scaled_rate_helps",
        "scaled > fixed",
        lambda m: by_seeds(m.batches[LARGEST].scaled, m.batches[LARGEST].fixed),
        _batches,
        scale=100,
    ),
    Pair("uneven_parts_slow", "uneven > even", _uneven, _largest_part),
    _costs("range_costs", "range"),
    _costs("rank_seed_costs", "rank-seed"),
    Pair(
        "loss_hides_it",
        "right > wrong",
        lambda m: by_seeds(*(_learnt(way)(m).final_losses for way in ("right", "range"))),
        _most,
    ),
    Bound(
        "wrong_is_refused",
        "refused == samplers",
        lambda m: {"refused": sum(map(bool, m.refusals.values())), "samplers": len(m.refusals)},
    ),
    _faster("faster_than_one_process", ONE_CORE, when=lambda m: bool(m.plan.gpus)),
    _faster("faster_than_one_core", ONE_CORE, when=lambda m: not m.plan.gpus),
    _faster("faster_than_all_cores", ALL_CORES, when=lambda m: not m.plan.gpus),
    Computed("communication_limits", communication_limits),
    _faster("speed_parts_help", SLOW_RANDOM, "speed"),
    Pair(
        "crowded_is_slower",
        "crowded > fitting",
        _crowded,
        _crowded_numbers,
        when=lambda m: not m.plan.gpus and m.plan.fitting <= m.plan.cores < m.plan.most,
    ),
)
