"""The findings of the part: which numbers go into which claim."""

from shoal.report.findings import Finding
from shoal_labs.optimise.pruning import claims
from shoal_labs.optimise.pruning.measure import PruningMeasurements
from shoal_labs.optimise.pruning.plan import USUAL


def find(measured: PruningMeasurements) -> dict[str, list[Finding]]:
    """The findings, in one section of the analysis."""
    weights, channels = (measured.pruned[kind, sparsity] for kind, sparsity in USUAL.items())
    fewest, most = measured.of_kind("channels")[0], measured.of_kind("channels")[-1]
    return {
        "pruning": [
            claims.accuracy_survives(measured.tuned[weights.kind], weights.accuracies, weights.sparsity),
            claims.zeros_are_not_faster(measured.forward_s, weights.forward_s, weights.sparsity),
            claims.channels_are_faster(measured.forward_s, channels.forward_s, channels.sparsity),
            claims.tuning_recovers(channels.at_once, channels.accuracies, channels.sparsity),
            claims.too_much_costs(fewest.accuracies, most.accuracies, most.sparsity),
        ]
    }
