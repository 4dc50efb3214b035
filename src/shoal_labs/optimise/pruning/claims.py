"""What the part claims: each claim a function of numbers alone, so that a test can feed it either outcome."""

from collections.abc import Callable, Sequence

from shoal.report.findings import Finding, Measured, Verdict, inside_run, over_seeds
from shoal.report.paired import FEWEST, Paired, by_rounds, by_seeds, first_higher, first_lower
from shoal_labs.numbers import no_worse, whether

POINT = 0.01
"""The accuracy that pruning may cost."""
FASTER = 1.1
"""From this speed-up on a network counts as faster."""


def accuracy_survives(whole: Sequence[float], pruned: Sequence[float], sparsity: float) -> Finding:
    """With most weights pruned, accuracy falls by less than a point, seed by seed; both fine-tuned alike."""
    accuracies = by_seeds(whole, pruned)
    numbers = _accuracies(accuracies, "whole", "pruned", sparsity) | {"point": 100 * POINT}
    return Finding("accuracy_survives", numbers, no_worse(accuracies, POINT), accuracies.pairs)


def tuning_recovers(at_once: Sequence[float], tuned: Sequence[float], sparsity: float) -> Finding:
    """After channels are removed, fine-tuning raises the accuracy with every seed.

    Accuracies right after pruning differ much from seed to seed, and so do the gains: each is judged by itself.
    """
    gains = [after - before for after, before in zip(tuned, at_once, strict=True)]
    numbers = {
        "at_once": over_seeds(at_once).scaled(100),
        "tuned": over_seeds(tuned).scaled(100),
        "least": 100 * min(gains),
        "most": 100 * max(gains),
        "sparsity": 100 * sparsity,
    }
    all_gain, none_gains = min(gains) >= POINT, max(gains) < POINT
    decided = len(gains) >= FEWEST and min(gains) < max(gains) and (all_gain or none_gains)
    return Finding("tuning_recovers", numbers, whether(all_gain) if decided else "undecided")


def zeros_are_not_faster(whole: Sequence[float], zeros: Sequence[float], sparsity: float) -> Finding:
    """Zeros in dense tensors are computed like any other number. Seconds of a forward pass, in turns."""
    return _speedup("zeros_are_not_faster", whole, zeros, sparsity, first_lower)


def channels_are_faster(whole: Sequence[float], smaller: Sequence[float], sparsity: float) -> Finding:
    """A network with fewer channels is faster. Seconds of a forward pass, in turns."""
    return _speedup("channels_are_faster", whole, smaller, sparsity, first_higher)


def too_much_costs(some: Sequence[float], most: Sequence[float], sparsity: float) -> Finding:
    """With most channels gone, accuracy is lower than with a few gone, fine-tuned alike; seed by seed."""
    accuracies = by_seeds(some, most)
    numbers = _accuracies(accuracies, "some", "most", sparsity)
    return Finding("too_much_costs", numbers, first_higher(accuracies), accuracies.pairs)


def _accuracies(pair: Paired, first: str, second: str, sparsity: float) -> dict[str, Measured | float]:
    return {
        first: pair.first.scaled(100),
        second: pair.second.scaled(100),
        "loss": 100 * pair.difference.value,
        "sparsity": 100 * sparsity,
    }


def _speedup(
    claim: str,
    whole: Sequence[float],
    pruned: Sequence[float],
    sparsity: float,
    judge: Callable[[Paired], Verdict],
) -> Finding:
    ratios = inside_run([a / b for a, b in zip(whole, pruned, strict=True)])
    numbers = {"speedup": ratios, "sparsity": 100 * sparsity, "percent": 100 * (FASTER - 1)}
    bound = by_rounds(whole, [FASTER * each for each in pruned])
    return Finding(claim, numbers, judge(bound), bound.pairs)
