from types import SimpleNamespace

import pytest
from outcomes import rounds

from shoal.report.findings import over_seeds
from shoal_labs.optimise.pruning_page import CLAIMS, tuning_recovers

BY_NAME = {claim.name: claim for claim in CLAIMS}
HIGH, LOW = (0.950, 0.952, 0.949, 0.951, 0.950), (0.80, 0.82, 0.81, 0.80, 0.81)
MIXED, OTHER = (0.90, 0.99, 0.80, 0.97, 0.95), (0.951, 0.951, 0.950, 0.950, 0.951)


def pruned(**numbers):
    """Measurements of which both kinds of pruning have the same."""
    each = SimpleNamespace(sparsity=0.5, **numbers)
    return SimpleNamespace(
        pruned={("weights", 0.8): each, ("channels", 0.5): each},
        speedup=lambda _: 1.0,
        forward_s=rounds(1.0)[: len(numbers.get("forward_s", ()))],
    )


@pytest.mark.parametrize(
    ("at_once", "tuned", "verdict"),
    [
        (LOW, HIGH, "holds"),
        ((0.2, 0.8, 0.5, 0.6, 0.7), HIGH, "holds"),
        (HIGH, OTHER, "fails"),
        (MIXED, HIGH, "undecided"),
        ((0.2,), (0.9,), "undecided"),
        ((0.9, 0.91), (0.5, 0.51), "undecided"),
    ],
)
def test_tuning_recovers_if_every_seed_gains_a_point(at_once, tuned, verdict):
    measured = pruned(at_once=at_once, accuracies=tuned, accuracy=over_seeds(tuned))
    assert tuning_recovers(measured).verdict == verdict


@pytest.mark.parametrize(
    ("seconds", "zeros", "channels"),
    [
        (rounds(1.0, noise=0.5), "holds", "fails"),
        (rounds(0.66), "fails", "holds"),
        (rounds(1 / 1.1, noise=-1), "undecided", "undecided"),
        ([0.5] * 3, "undecided", "undecided"),
    ],
)
def test_a_network_is_faster_from_a_tenth_on(seconds, zeros, channels):
    measured = pruned(forward_s=seconds)
    found = [BY_NAME[name].judge(measured) for name in ("zeros_are_not_faster", "channels_are_faster")]
    assert [each.verdict for each in found] == [zeros, channels]
