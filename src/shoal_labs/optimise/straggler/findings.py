"""The findings of the part: which numbers go into which claim."""

from shoal.report.findings import Finding
from shoal_labs.optimise.straggler import claims
from shoal_labs.optimise.straggler.measure import StragglerMeasurements, Watched
from shoal_labs.optimise.straggler.plan import STALENESS, TARGET


def find(measured: StragglerMeasurements) -> dict[str, list[Finding]]:
    """The findings, by section of the analysis."""
    ways = measured.ways
    bsp, ssp, asp = (ways["always", way] for way in ("bsp", "ssp", "asp"))
    slow = measured.plan.slow
    throughput = [
        claims.slowest_sets_the_pace(bsp.rates, bsp.ideals),
        claims.asp_is_faster(asp.rates, bsp.rates),
        claims.asp_reaches_the_sum(asp.rates, asp.ideals),
        claims.backup_is_faster(ways["always", "backup"].rates, bsp.rates),
        claims.balanced_is_faster(ways["always", "balanced"].rates, bsp.rates),
        claims.ssp_waits_for_a_constant_straggler(asp.rates, ssp.rates),
        claims.ssp_absorbs_passing_delays(ways["passing", "ssp"].rates, ways["passing", "bsp"].rates),
    ]
    num_updates = sum(len(ways[condition, "ssp"].updates) for condition in measured.bound_broken)
    others = [rank for rank in range(measured.plan.workers) if rank != slow]
    stale = [asp.staleness_of(ranks, measured.epoch_steps) for ranks in ([slow], others)]
    count = min(map(len, stale))
    staleness = [
        claims.ssp_keeps_its_bound(sum(measured.bound_broken.values()), num_updates, STALENESS),
        claims.slow_worker_is_stalest(stale[0][:count], stale[1][:count]),
        claims.asp_learns_sooner(_times_to_target(asp), _times_to_target(bsp), TARGET),
    ]
    return {"throughput": throughput, "staleness": staleness}


def _times_to_target(way: Watched) -> list[float | None]:
    """Of every run of a way."""
    found = [run.time_to(TARGET) for run in (way, *way.again)]
    return [each.value if each else None for each in found]
