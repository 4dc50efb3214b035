"""The lab's findings: each a function of numbers alone, so that a test can feed it either outcome."""

import math
from collections.abc import Mapping

from shoal.data.division.coverage import expected_coverage_of_sampling
from shoal.labs.lab3.measure import Divided, Measurements, Pace
from shoal.labs.lab3.own_loop import WRONG
from shoal.labs.lab3.plan import PARTITIONS
from shoal.labs.numbers import scientific, whether
from shoal.labs.page.analysis import Findings
from shoal.report.findings import SPREADS, Finding, Measured, Verdict, higher, lower

ROUNDING = 1e-5
"""A relative difference of weights below this is rounding in float32, carried through a few steps."""
MARGIN = 0.03
"""A loss of accuracy up to this margin does not count."""
NEAR = 0.02
"""A coverage this close to its formula, or within its spread, counts as equal to it."""


def no_worse(reference: Measured, other: Measured, margin: float) -> Verdict:
    """Whether a number is lower than the reference by no more than a margin; undecided while spread leaves that open.

    >>> reference = Measured(0.94, 0.002, "seeds", 3)
    >>> [no_worse(reference, Measured(0.93, spread, "seeds", 3), margin=0.03) for spread in (0.001, 0.1)]
    ['holds', 'undecided']
    """
    lost, noise = reference.value - other.value, SPREADS * math.hypot(reference.spread, other.spread)
    if reference.basis == other.basis == "none" or lost - noise <= margin < lost + noise:
        return "undecided"
    return "holds" if lost <= margin else "fails"


# ── one machine ──


def global_equals_one(differences: Mapping[int, float], steps: int) -> Finding:
    """When every step is divided anew, training equals one machine, for every number of workers."""
    shown = _each({workers: scientific(value) for workers, value in differences.items()})
    numbers = {"differences": shown, "steps": steps}
    return Finding("global_equals_one", numbers, whether(max(differences.values()) <= ROUNDING))


def order_decides(differences: Mapping[str, float], workers: int, steps: int) -> Finding:
    """Every division equals one machine that takes the same samples in the same steps."""
    worst = max(differences.values())
    numbers = {"divisions": len(differences), "worst": scientific(worst), "workers": workers, "steps": steps}
    return Finding("order_decides", numbers, whether(worst <= ROUNDING))


# ── coverage ──


def partitions_cover_once(once: Mapping[str, bool]) -> Finding:
    """Every partition goes through every sample exactly once in an epoch."""
    numbers = {"right": sum(once.values()), "partitions": len(once)}
    return Finding("partitions_cover_once", numbers, whether(all(once.values())))


def sampling_covers(measured: Measured, predicted: float) -> Finding:
    """Sampling with replacement sees 1 − 1/e of the data set in an epoch."""
    numbers = {"measured": measured.scaled(100), "predicted": 100 * predicted}
    return Finding("sampling_covers", numbers, whether(_near(measured, predicted)))


def range_covers(measured: Mapping[int, Measured], predicted: Mapping[int, float]) -> Finding:
    """A range of one worker's length sees 1/W of the data set."""
    return _formula("range_covers", measured, predicted)


def rank_seed_covers(measured: Mapping[int, Measured], predicted: Mapping[int, float]) -> Finding:
    """A seed for each rank sees 1 − (1 − 1/W)^W of the data set in an epoch."""
    return _formula("rank_seed_covers", measured, predicted)


def _formula(claim: str, measured: Mapping[int, Measured], predicted: Mapping[int, float]) -> Finding:
    shown = _each({w: f"{measured[w].scaled(100):.1f} % ({100 * predicted[w]:.1f} %)" for w in measured})
    right = all(_near(measured[workers], predicted[workers]) for workers in measured)
    return Finding(claim, {"measured": shown}, whether(right))


def _near(measured: Measured, predicted: float) -> bool:
    return abs(measured.value - predicted) <= max(NEAR, SPREADS * measured.spread)


# ── learning, where all workers have the same kind of data ──


def random_no_worse(one: Measured, random: Measured, workers: int) -> Finding:
    """With a random partition training ends no less accurate than on one machine."""
    return _no_worse("random_no_worse", one, random, workers)


def sampling_no_worse(one: Measured, sampling: Measured, workers: int) -> Finding:
    """With random sampling training ends no less accurate than with a random partition."""
    return _no_worse("sampling_no_worse", one, sampling, workers)


# ── learning, where they have not ──


def label_no_worse(random: Measured, label: Measured, workers: int) -> Finding:
    """When workers that agree in every step have different labels, nothing is lost."""
    return _no_worse("label_no_worse", random, label, workers)


def dirichlet_no_worse(random: Measured, dirichlet: Measured, workers: int) -> Finding:
    """Nor when a Dirichlet distribution divides every label."""
    return _no_worse("dirichlet_no_worse", random, dirichlet, workers)


def seldom_label_costs(random: Measured, label: Measured, workers: int) -> Finding:
    """When workers agree once an epoch, different labels cost accuracy."""
    numbers = {"random": random.scaled(100), "label": label.scaled(100), "workers": workers}
    return Finding("seldom_label_costs", numbers, lower(label, random))


def uneven_parts_slow(even: Measured, uneven: Measured, largest: float, workers: int) -> Finding:
    """Where one worker has more samples than the others, all wait for it."""
    numbers = {"even": even, "uneven": uneven, "largest": 100 * largest, "workers": workers}
    return Finding("uneven_parts_slow", numbers, higher(uneven, even))


def _no_worse(claim: str, reference: Measured, other: Measured, workers: int) -> Finding:
    numbers = {
        "reference": reference.scaled(100),
        "other": other.scaled(100),
        "workers": workers,
        "margin": 100 * MARGIN,
    }
    return Finding(claim, numbers, no_worse(reference, other, MARGIN))


# ── the wrong samplers ──


def range_costs(right: Measured, wrong: Measured, workers: int) -> Finding:
    """A range of one worker's length costs accuracy."""
    return _costs("range_costs", right, wrong, workers)


def rank_seed_costs(right: Measured, wrong: Measured, workers: int) -> Finding:
    """A seed for each rank costs accuracy."""
    return _costs("rank_seed_costs", right, wrong, workers)


def loss_hides_it(right: Measured, wrong: Measured, workers: int) -> Finding:
    """The training loss of the wrong range is lower than the right sampler's."""
    numbers = {"right": right, "wrong": wrong, "workers": workers}
    return Finding("loss_hides_it", numbers, lower(wrong, right))


def wrong_is_refused(said: Mapping[str, str]) -> Finding:
    """Handed over as a partition, the wrong samplers are refused."""
    numbers = {"refused": sum(map(bool, said.values())), "samplers": len(said)}
    return Finding("wrong_is_refused", numbers, whether(all(said.values())))


def _costs(claim: str, right: Measured, wrong: Measured, workers: int) -> Finding:
    numbers = {"right": right.scaled(100), "wrong": wrong.scaled(100), "workers": workers}
    return Finding(claim, numbers, lower(wrong, right))


# ── speed ──


def faster_than_one_core(one: Measured, several: Measured, workers: int) -> Finding:
    """Several workers are faster than one process on one core."""
    return _faster("faster_than_one_core", one, several, workers)


def faster_than_all_cores(one: Measured, several: Measured, workers: int) -> Finding:
    """Several workers are faster than one process on all cores."""
    return _faster("faster_than_all_cores", one, several, workers)


def crowded_is_slower(fitting: Measured, crowded: Measured, counts: tuple[int, int, int]) -> Finding:
    """More workers than cores are slower than one worker per core."""
    few, many, cores = counts
    numbers = {"fitting": fitting, "crowded": crowded, "few": few, "many": many, "cores": cores}
    return Finding("crowded_is_slower", numbers, higher(crowded, fitting))


def communication_limits(one: Measured, several: Measured, communication_ms: float, ideal: int) -> Finding:
    """What is missing to the ideal speed-up is mostly communication. Times of a step, in ms."""
    best = one.scaled(1 / ideal)
    missing = several.value - best.value
    numbers = {
        "ideal": ideal,
        "reached": one.value / several.value,
        "missing": missing,
        "communication": communication_ms,
        "several": several,
    }
    decided = higher(several, best) == "holds"
    return Finding(
        "communication_limits", numbers, whether(communication_ms > missing / 2) if decided else "undecided"
    )


def speed_parts_help(equal: Measured, by_speed: Measured, workers: int) -> Finding:
    """Where one worker is slow, parts by speed are faster than equal parts."""
    return _faster("speed_parts_help", equal, by_speed, workers)


def _faster(claim: str, one: Measured, several: Measured, workers: int) -> Finding:
    """Whether the second takes less time per sample; shown as samples per second."""
    numbers = {
        "one": 1e3 / one.value,
        "several": 1e3 / several.value,
        "ratio": one.value / several.value,
        "spread": 100 * max(one.spread / one.value, several.spread / several.value),
        "workers": workers,
    }
    return Finding(claim, numbers, lower(several, one))


def _each(values: Mapping[int, str]) -> str:
    """A value for each number of workers, in symbols that need no translation.

    >>> _each({2: "50 %", 4: "25 %"})
    'W = 2: 50 %; W = 4: 25 %'
    """
    return "; ".join(f"W = {workers}: {value}" for workers, value in values.items())


# ── all of them ──


def find(measured: Measurements) -> Findings:
    """Every finding, by section of the analysis."""
    plan, own = measured.plan, measured.own
    most, fitting, steps = plan.most, measured.fitting, plan.size.equal_steps
    accuracy = {name: each.learnt.test_accuracy for (name, w), each in measured.divided.items() if w == most}
    seldom = {way: own[f"seldom-{way}", most].learnt.test_accuracy for way in ("random", "label")}
    random, dirichlet = (measured.divided[name, fitting] for name in ("random", "dirichlet-0.1"))
    largest = dirichlet.seen[0].largest_part
    return {
        "one_machine": [
            global_equals_one(measured.from_single, steps),
            order_decides(measured.from_same_order, most, steps),
        ],
        "coverage": _coverage(measured),
        "alike": [
            random_no_worse(measured.single.test_accuracy, accuracy["random"], most),
            sampling_no_worse(accuracy["random"], accuracy["sampling"], most),
        ],
        "unlike": [
            label_no_worse(accuracy["random"], accuracy["label"], most),
            dirichlet_no_worse(accuracy["random"], accuracy["dirichlet-0.1"], most),
            seldom_label_costs(seldom["random"], seldom["label"], most),
            uneven_parts_slow(_timed(random).step_ms, _timed(dirichlet).step_ms, largest, fitting),
        ],
        "wrong": _wrong(measured),
        "speed": _speed(measured),
    }


def _coverage(measured: Measurements) -> list[Finding]:
    plan, own = measured.plan, measured.own
    num_samples = measured.num_samples["train"]
    divided = {name: [measured.divided[name, w] for w in plan.workers] for name in (*PARTITIONS, "sampling")}
    coverages = {way: {w: own[way, w].first_coverage for w in plan.workers} for way in WRONG}
    predicted = {way: {w: own[way, w].predicted for w in plan.workers} for way in WRONG}
    once = {name: all(seen.once for each in divided[name] for seen in each.seen) for name in PARTITIONS}
    return [
        partitions_cover_once(once),
        sampling_covers(
            measured.divided["sampling", plan.most].coverage,
            expected_coverage_of_sampling(num_samples, num_samples),
        ),
        range_covers(coverages["range"], predicted["range"]),
        rank_seed_covers(coverages["rank-seed"], predicted["rank-seed"]),
    ]


def _wrong(measured: Measurements) -> list[Finding]:
    most = measured.plan.most
    right, ranged, rank_seed = (measured.own[way, most].learnt for way in ("right", "range", "rank-seed"))
    return [
        range_costs(right.test_accuracy, ranged.test_accuracy, most),
        rank_seed_costs(right.test_accuracy, rank_seed.test_accuracy, most),
        loss_hides_it(right.final_loss, ranged.final_loss, most),
        wrong_is_refused(measured.refusals),
    ]


def _speed(measured: Measurements) -> list[Finding]:
    plan, fitting = measured.plan, measured.fitting
    paces = {w: _timed(measured.divided["global", w]) for w in plan.workers}
    pace = paces[fitting]
    by_speed = _timed(measured.divided["speed", fitting])
    findings = [
        faster_than_one_core(measured.one_core.sample_ms, pace.sample_ms, fitting),
        faster_than_all_cores(measured.all_cores.sample_ms, pace.sample_ms, fitting),
        communication_limits(
            measured.one_core.step_ms,
            pace.step_ms,
            pace.communication * pace.step_ms.value,
            min(fitting, plan.cores),
        ),
        speed_parts_help(measured.slow_random[fitting].sample_ms, by_speed.sample_ms, fitting),
    ]
    if fitting <= plan.cores < plan.most:
        counts = (fitting, plan.most, plan.cores)
        findings.append(crowded_is_slower(pace.step_ms, paces[plan.most].step_ms, counts))
    return findings


def _timed(divided: Divided) -> Pace:
    assert divided.pace is not None, "every plan times the divisions whose speed is judged"
    return divided.pace
