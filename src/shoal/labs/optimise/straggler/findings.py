"""The findings of the part: which numbers go into which claim."""

from shoal.labs.optimise.straggler import claims
from shoal.labs.optimise.straggler.measure import Measurements
from shoal.labs.optimise.straggler.plan import STALENESS, TARGET
from shoal.report.findings import Finding


def find(measured: Measurements) -> dict[str, list[Finding]]:
    """The findings, by section of the analysis."""
    ways = measured.ways
    bsp, ssp, asp = (ways["always", way] for way in ("bsp", "ssp", "asp"))
    slow = measured.plan.slow
    throughput = [
        claims.slowest_sets_the_pace(bsp.rate, bsp.ideal),
        claims.asp_is_faster(asp.rate, bsp.rate),
        claims.asp_reaches_the_sum(asp.rate, asp.ideal),
        claims.backup_is_faster(ways["always", "backup"].rate, bsp.rate),
        claims.balanced_is_faster(ways["always", "balanced"].rate, bsp.rate),
        claims.ssp_waits_for_a_constant_straggler(asp.rate, ssp.rate),
        claims.ssp_absorbs_passing_delays(ways["passing", "ssp"].rate, ways["passing", "bsp"].rate),
    ]
    num_updates = sum(len(ways[condition, "ssp"].updates) for condition in measured.bound_broken)
    staleness = [
        claims.ssp_keeps_its_bound(sum(measured.bound_broken.values()), num_updates, STALENESS),
        claims.slow_worker_is_stalest(
            [update.staleness for update in asp.updates if update.rank == slow],
            [update.staleness for update in asp.updates if update.rank != slow],
        ),
        claims.asp_learns_sooner(asp.time_to(TARGET), bsp.time_to(TARGET), TARGET),
    ]
    return {"throughput": throughput, "staleness": staleness}
