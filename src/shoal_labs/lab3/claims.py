"""What the lab claims: each claim a function of numbers alone, so that a test can feed it either outcome."""

from collections.abc import Mapping
from dataclasses import replace

from shoal.report.findings import SPREADS, Finding, Measured, Verdict
from shoal.report.paired import Paired, first_higher
from shoal.words import Phrase
from shoal_labs.numbers import no_worse, scientific, whether

ROUNDING = 1e-5
"""A relative difference of weights below this is rounding in float32, carried through a few steps."""
MARGIN = 0.03
"""A loss of accuracy up to this margin does not count."""
NEAR = 0.02
"""A coverage this close to its formula, or within its spread, counts as equal to it."""


def costs(lost: Paired, margin: float) -> Verdict:
    """Whether the second number is lower than the first. A loss that is certainly within the margin is none.

    >>> from shoal.report.paired import by_seeds
    >>> noises = 0.001, 0.005, 0.1
    >>> pairs = [by_seeds([0.94] * 6, [0.935 + noise * (-1) ** i for i in range(6)]) for noise in noises]
    >>> [costs(pair, margin=0.03) for pair in pairs]
    ['holds', 'fails', 'undecided']
    """
    if first_higher(lost) != "undecided" or lost.difference.basis == "none":
        return first_higher(lost)
    return "fails" if lost.difference.value + SPREADS * lost.difference.spread <= margin else "undecided"


# ── one machine ──


def global_equals_one(differences: Mapping[int, float], steps: int) -> Finding:
    """When every step is divided anew, training equals one machine, for every number of workers."""
    shown = tuple(
        Phrase("each.workers", {"workers": workers, "value": scientific(value)})
        for workers, value in differences.items()
    )
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
    shown = tuple(
        Phrase(
            "each.coverage",
            {"workers": w, "measured": measured[w].scaled(100), "formula": 100 * predicted[w]},
        )
        for w in measured
    )
    right = all(_near(measured[workers], predicted[workers]) for workers in measured)
    return Finding(claim, {"measured": shown}, whether(right))


def _near(measured: Measured, predicted: float) -> bool:
    return abs(measured.value - predicted) <= max(NEAR, SPREADS * measured.spread)


# ── learning, where all workers have the same kind of data ──


def random_no_worse(accuracies: Paired, workers: int) -> Finding:
    """With a random partition (second) training ends no less accurate than on one machine."""
    return _no_worse("random_no_worse", accuracies, workers)


def sampling_no_worse(accuracies: Paired, workers: int) -> Finding:
    """With random sampling (second) training ends no less accurate than with a random partition."""
    return _no_worse("sampling_no_worse", accuracies, workers)


# ── learning, where they have not ──


def label_no_worse(accuracies: Paired, workers: int) -> Finding:
    """When workers that agree in every step have different labels (second), nothing is lost."""
    return _no_worse("label_no_worse", accuracies, workers)


def dirichlet_no_worse(accuracies: Paired, workers: int) -> Finding:
    """Nor when a Dirichlet distribution divides every label."""
    return _no_worse("dirichlet_no_worse", accuracies, workers)


def seldom_label_costs(accuracies: Paired, workers: int) -> Finding:
    """When workers agree once an epoch, different labels (second) cost accuracy."""
    numbers = {
        "random": accuracies.first.scaled(100),
        "label": accuracies.second.scaled(100),
        "workers": workers,
    }
    return Finding("seldom_label_costs", numbers, first_higher(accuracies), accuracies.pairs)


def uneven_parts_slow(steps: Paired, largest: float, workers: int) -> Finding:
    """Where one worker has more samples than the others (first), all wait for it."""
    numbers = {"even": steps.second, "uneven": steps.first, "largest": 100 * largest, "workers": workers}
    return Finding("uneven_parts_slow", numbers, first_higher(steps), steps.pairs)


def _no_worse(claim: str, accuracies: Paired, workers: int) -> Finding:
    numbers = {
        "reference": accuracies.first.scaled(100),
        "other": accuracies.second.scaled(100),
        "workers": workers,
        "margin": 100 * MARGIN,
    }
    return Finding(claim, numbers, no_worse(accuracies, MARGIN), accuracies.pairs)


# ── the wrong samplers ──


def range_costs(accuracies: Paired, workers: int) -> Finding:
    """A range of one worker's length costs accuracy; first the right sampler."""
    return _costs("range_costs", accuracies, workers)


def rank_seed_costs(accuracies: Paired, workers: int) -> Finding:
    """A seed for each rank costs accuracy; first the right sampler."""
    return _costs("rank_seed_costs", accuracies, workers)


def loss_hides_it(losses: Paired, workers: int) -> Finding:
    """The training loss of the wrong range is lower than the right sampler's (first)."""
    numbers = {"right": losses.first, "wrong": losses.second, "workers": workers}
    return Finding("loss_hides_it", numbers, first_higher(losses), losses.pairs)


def wrong_is_refused(said: Mapping[str, str]) -> Finding:
    """Handed over as a partition, the wrong samplers are refused."""
    numbers = {"refused": sum(map(bool, said.values())), "samplers": len(said)}
    return Finding("wrong_is_refused", numbers, whether(all(said.values())))


def _costs(claim: str, accuracies: Paired, workers: int) -> Finding:
    numbers = {
        "right": accuracies.first.scaled(100),
        "wrong": accuracies.second.scaled(100),
        "workers": workers,
        "margin": 100 * MARGIN,
    }
    return Finding(claim, numbers, costs(accuracies, MARGIN), accuracies.pairs)


# ── speed ──


def faster_than_one_core(times: Paired, workers: int) -> Finding:
    """Several workers are faster than one process on one core (first). Milliseconds per sample."""
    return _faster("faster_than_one_core", times, workers)


def faster_than_all_cores(times: Paired, workers: int) -> Finding:
    """Several workers are faster than one process on all cores (first)."""
    return _faster("faster_than_all_cores", times, workers)


def faster_than_one_process(times: Paired, workers: int, gpus: int) -> Finding:
    """Several workers are faster than one process (first) on one of the GPUs that they share."""
    found = _faster("faster_than_one_process", times, workers)
    return replace(found, numbers={**found.numbers, "gpus": gpus})


def crowded_is_slower(
    ratios: Paired, fitting: Measured, crowded: Measured, counts: tuple[int, int, int]
) -> Finding:
    """More workers than cores are slower than one worker per core.

    `ratios`: of the crowded (first) and of the fitting workers to one process, each in the rounds of its own.
    """
    few, many, cores = counts
    numbers = {"fitting": fitting, "crowded": crowded, "few": few, "many": many, "cores": cores}
    return Finding("crowded_is_slower", numbers, first_higher(ratios), ratios.pairs)


def communication_limits(one: Measured, steps: Paired, communication_ms: float, ideal: int) -> Finding:
    """What is missing to the ideal speed-up is mostly communication.

    Times of a step, in ms; `steps`: of several workers, and of the best they could do.
    """
    missing = steps.first.value - steps.second.value
    numbers = {
        "ideal": ideal,
        "reached": one.value / steps.first.value,
        "missing": missing,
        "communication": communication_ms,
        "several": steps.first,
    }
    decided = first_higher(steps) == "holds"
    verdict = whether(communication_ms > missing / 2) if decided else "undecided"
    return Finding("communication_limits", numbers, verdict, steps.pairs)


def speed_parts_help(times: Paired, workers: int) -> Finding:
    """Where one worker is slow, parts by speed are faster than equal parts (first)."""
    return _faster("speed_parts_help", times, workers)


def _faster(claim: str, times: Paired, workers: int) -> Finding:
    """Whether the second takes less time per sample; shown as samples per second."""
    one, several = times.first, times.second
    numbers = {
        "one": 1e3 / one.value,
        "several": 1e3 / several.value,
        "ratio": one.value / several.value,
        "spread": 100 * max(one.spread / one.value, several.spread / several.value),
        "workers": workers,
    }
    return Finding(claim, numbers, first_higher(times), times.pairs)
