"""Every number of the part, as a table for other programs."""

from shoal.report.plain_tables import Records
from shoal_labs.optimise.memory.measure import MemoryMeasurements


def tables(measured: MemoryMeasurements) -> dict[str, Records]:
    """The table by its name."""
    front = measured.front()
    return {
        "memory": [
            {
                "technique": each.technique,
                "flags": each.flags,
                "exact": each.is_exact,
                "peak (MiB)": each.peak_mib.value,
                "step (ms)": each.step_ms.value,
                "time over plain (1)": each.ratio(measured.plain).value,
                "on the Pareto front": each.flags in front,
            }
            for each in measured.tried.values()
        ]
    }
