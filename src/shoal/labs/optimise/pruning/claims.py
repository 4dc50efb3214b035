"""What the part claims: each claim a function of numbers alone, so that a test can feed it either outcome."""

from collections.abc import Sequence

from shoal.labs.numbers import whether
from shoal.report.findings import Finding, Measured, higher, lead, lower, over_seeds

POINT = 0.01
"""The accuracy that pruning may cost."""
FASTER = 1.1
"""From this speed-up on a network counts as faster."""


def _exactly(value: float) -> Measured:
    return Measured(value, 0.0, "none", 1)


def accuracy_survives(whole: Sequence[float], pruned: Sequence[float], sparsity: float) -> Finding:
    """With most weights pruned and an epoch of fine-tuning, accuracy falls by less than a point, seed by seed."""
    loss = lead(whole, pruned)
    numbers = {
        "whole": over_seeds(whole).scaled(100),
        "pruned": over_seeds(pruned).scaled(100),
        "loss": loss.scaled(100),
        "sparsity": 100 * sparsity,
        "point": 100 * POINT,
    }
    return Finding("accuracy_survives", numbers, lower(loss, _exactly(POINT)))


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
    if len(gains) < 2 or not (all_gain or none_gains):
        return Finding("tuning_recovers", numbers, "undecided")
    return Finding("tuning_recovers", numbers, whether(all_gain))


def zeros_are_not_faster(speedup: Measured, sparsity: float) -> Finding:
    """Zeros in dense tensors are computed like any other number."""
    numbers = {"speedup": speedup, "sparsity": 100 * sparsity, "percent": 100 * (FASTER - 1)}
    return Finding("zeros_are_not_faster", numbers, lower(speedup, _exactly(FASTER)))


def channels_are_faster(speedup: Measured, sparsity: float) -> Finding:
    """A network with fewer channels is faster."""
    numbers = {"speedup": speedup, "sparsity": 100 * sparsity, "percent": 100 * (FASTER - 1)}
    return Finding("channels_are_faster", numbers, higher(speedup, _exactly(FASTER)))


def too_much_costs(some: Sequence[float], most: Sequence[float], sparsity: float) -> Finding:
    """With most channels gone, accuracy is lower than with a few gone, fine-tuned alike; seed by seed."""
    loss = lead(some, most)
    numbers = {
        "some": over_seeds(some).scaled(100),
        "most": over_seeds(most).scaled(100),
        "loss": loss.scaled(100),
        "sparsity": 100 * sparsity,
    }
    return Finding("too_much_costs", numbers, higher(loss, _exactly(0.0)))
