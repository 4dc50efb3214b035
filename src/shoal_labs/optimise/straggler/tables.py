"""Every number of the part, as tables for other programs."""

from shoal.report.plain_tables import Records
from shoal_labs.optimise.straggler.measure import StragglerMeasurements
from shoal_labs.optimise.straggler.plan import TARGET


def tables(measured: StragglerMeasurements) -> dict[str, Records]:
    """The tables by name."""
    return {
        "stragglers": [
            {
                "straggler": condition,
                "way": way,
                "samples per second (1/s)": watched.rate.value,
                "spread (1/s)": watched.rate.spread,
                "sum of 1/t (1/s)": watched.ideal.value,
                f"time to {TARGET:.0%} (s)": reached.value if (reached := watched.time_to(TARGET)) else "",
                "mean staleness (updates)": watched.mean_staleness,
                "largest staleness (updates)": max(watched.staleness),
                "dropped pushes": watched.dropped,
            }
            for (condition, way), watched in measured.ways.items()
        ],
        "straggler_epochs": [
            {
                "straggler": condition,
                "way": way,
                "epoch": epoch,
                "training time (s)": seconds,
                "validation accuracy (1)": accuracy,
            }
            for (condition, way), watched in measured.ways.items()
            for epoch, (seconds, accuracy) in enumerate(
                zip(watched.seconds, watched.accuracies, strict=True), start=1
            )
        ],
        "staleness": [
            {"straggler": condition, "way": way, "staleness (updates)": staleness, "updates": count}
            for (condition, way), watched in measured.ways.items()
            if watched.updates
            for staleness, count in watched.staleness.items()
        ],
    }
