"""The findings of the part: which numbers go into which claim."""

from shoal.report.findings import Finding
from shoal_labs.optimise.memory import claims
from shoal_labs.optimise.memory.measure import MemoryMeasurements


def find(measured: MemoryMeasurements) -> dict[str, list[Finding]]:
    """The findings, in one section of the analysis."""
    plain = measured.plain
    recomputed, parts = measured.of("checkpointing")[-1], measured.of("accumulation")[-1]
    least = min(measured.tried.values(), key=lambda each: each.peak_mib.value)
    return {
        "memory": [
            claims.recomputing_saves_memory(plain.peaks_mib, recomputed.peaks_mib),
            claims.recomputing_costs_time(plain.rounds_ms, recomputed.rounds_ms),
            claims.accumulation_saves_memory(plain.peaks_mib, parts.peaks_mib),
            claims.least_memory_is_slower(plain.rounds_ms, least.rounds_ms, least.flags),
        ]
    }
