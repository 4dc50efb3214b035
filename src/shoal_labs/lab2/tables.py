"""Every number of the report, as tables for other programs."""

from shoal.report.plain_tables import Records
from shoal_labs.lab2.branches import calls_of
from shoal_labs.lab2.measure import Lab2Measurements, as_labelled


def tables(measured: Lab2Measurements) -> dict[str, Records]:
    """The tables by name."""
    return {
        "exchange": [
            {
                "condition": condition,
                "branch": branch,
                "waiting (ms)": times.wait_ms.value,
                "waiting spread (ms)": times.wait_ms.spread,
                "moving (ms)": times.move_ms.value,
                "moving spread (ms)": times.move_ms.spread,
                "exchange (ms)": times.exchange_ms.value,
                "exchange spread (ms)": times.exchange_ms.spread,
            }
            for condition, branches in measured.branches.items()
            for branch, times in branches.items()
        ],
        "record": [
            {
                "branch": branch,
                "label": "+".join(sorted(calls_of(branch))),
                "called": "+".join(sorted(recorded.operations)),
                "calls per step": recorded.calls,
                "sent (bytes per step)": recorded.sent,
                "as labelled": as_labelled(branch, recorded),
            }
            for branch, recorded in measured.recorded.items()
        ],
        "pace": [
            {
                "run": name,
                "samples per second (1/s)": pace.samples_per_s.value,
                "spread (1/s)": pace.samples_per_s.spread,
                "rank": rank,
                "own (ms)": own.value,
                "waiting (ms)": wait.value,
                "moving (ms)": move.value,
            }
            for name, pace in measured.paces.items()
            for rank, (own, wait, move) in enumerate(pace.ranks)
        ],
        "differences": [
            {"compared": compared, "relative difference": difference}
            for compared, difference in measured.differences.items()
        ],
        "learnt": [
            {"aggregation": name, "seed": seed, "test accuracy (1)": accuracy, "final loss (nat)": loss}
            for name, learnt in measured.learnt.items()
            for seed, accuracy, loss in zip(
                measured.plan.learn_seeds(name), learnt.accuracies, learnt.losses, strict=True
            )
        ],
        "faults": [
            {
                "fault": fault,
                "rule": rule,
                "seed": seed,
                "test accuracy (1)": accuracy,
                "stopped": faulty.stopped,
            }
            for (fault, rule), faulty in measured.faulty.items()
            for seed, accuracy in zip(
                measured.plan.fault_seeds(fault, rule), faulty.accuracies or ("",), strict=False
            )
        ],
    }
