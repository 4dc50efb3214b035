"""Every number of the part, as a table for other programs."""

from shoal.report.plain_tables import Records
from shoal_labs.optimise.pruning.measure import PruningMeasurements


def tables(measured: PruningMeasurements) -> dict[str, Records]:
    """The table by its name."""
    return {
        "pruning": [
            {
                "pruned": pruned.kind,
                "sparsity (1)": pruned.sparsity,
                "seed": seed,
                "accuracy before (1)": before,
                "accuracy fine-tuned without pruning (1)": whole_tuned,
                "accuracy at once (1)": at_once,
                "accuracy fine-tuned (1)": tuned,
                "values": pruned.num_values,
                "kept values and masks (B)": pruned.num_bytes,
                "file (B)": pruned.file_bytes,
                "speed-up of a forward pass (1)": measured.speedup(pruned).value,
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
