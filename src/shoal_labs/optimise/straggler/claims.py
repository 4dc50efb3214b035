"""What the part claims: each claim a function of numbers alone, so that a test can feed it either outcome.

A way counts as faster only if it is by a margin: runs follow each other, and the machine changes. Rates are samples per
second, epoch by epoch.
"""

from collections.abc import Sequence

from shoal.report.findings import Finding
from shoal.report.paired import by_rounds, first_higher, first_lower
from shoal_labs.numbers import whether

MARGIN = 1.1
"""How many times as many samples per second count as faster."""
NEAR_SUM = 0.8
"""The part of Σ 1/tᵢ that a way without waiting reaches, with its communication."""


def slowest_sets_the_pace(bsp: Sequence[float], ideal: Sequence[float]) -> Finding:
    """With a straggler, bsp stays far below Σ 1/tᵢ."""
    rates = by_rounds(bsp, ideal)
    numbers = {"bsp": rates.first, "ideal": rates.second, "part": 100 * rates.ratio, "percent": _percent()}
    verdict = first_lower(by_rounds([MARGIN * each for each in bsp], ideal))
    return Finding("slowest_sets_the_pace", numbers, verdict, timed=True)


def asp_is_faster(asp: Sequence[float], bsp: Sequence[float]) -> Finding:
    """With a straggler, asp processes more samples per second than bsp."""
    return _faster("asp_is_faster", asp, bsp)


def asp_reaches_the_sum(asp: Sequence[float], ideal: Sequence[float]) -> Finding:
    """asp reaches Σ 1/tᵢ, less what communication and the meeting at the end of an epoch cost."""
    rates = by_rounds(asp, ideal)
    numbers = {
        "asp": rates.first,
        "ideal": rates.second,
        "part": 100 * rates.ratio,
        "percent": 100 * NEAR_SUM,
    }
    verdict = first_higher(by_rounds(asp, [NEAR_SUM * each for each in ideal]))
    return Finding("asp_reaches_the_sum", numbers, verdict, timed=True)


def backup_is_faster(backup: Sequence[float], bsp: Sequence[float]) -> Finding:
    """With a straggler, bsp with a backup worker is faster than without, although it drops gradients."""
    return _faster("backup_is_faster", backup, bsp)


def balanced_is_faster(balanced: Sequence[float], bsp: Sequence[float]) -> Finding:
    """With a straggler, shares by speed are faster than equal shares."""
    return _faster("balanced_is_faster", balanced, bsp)


def ssp_waits_for_a_constant_straggler(asp: Sequence[float], ssp: Sequence[float]) -> Finding:
    """With a worker that is always slow, ssp is slower than asp: its bound is reached soon."""
    return _faster("ssp_waits_for_a_constant_straggler", asp, ssp)


def ssp_absorbs_passing_delays(ssp: Sequence[float], bsp: Sequence[float]) -> Finding:
    """With delays that pass, ssp is faster than bsp."""
    return _faster("ssp_absorbs_passing_delays", ssp, bsp)


def ssp_keeps_its_bound(broken: int, updates: int, bound: int) -> Finding:
    """Under ssp, every gradient knows all updates that are more than s steps old."""
    numbers = {"broken": broken, "updates": updates, "bound": bound}
    return Finding("ssp_keeps_its_bound", numbers, whether(updates > 0 and broken == 0))


def slow_worker_is_stalest(slow: Sequence[float], others: Sequence[float]) -> Finding:
    """Under asp, the updates of the slow worker are staler than those of the others. Mean staleness, epoch by epoch."""
    staleness = by_rounds(slow, others)
    numbers = {"slow": staleness.first, "others": staleness.second}
    return Finding("slow_worker_is_stalest", numbers, first_higher(staleness), timed=True)


def asp_learns_sooner(asp: Sequence[float | None], bsp: Sequence[float | None], target: float) -> Finding:
    """With a straggler, asp reaches an accuracy sooner than bsp. Seconds of runs in turns; None: it was not reached."""
    reached = [(a, b) for a, b in zip(asp, bsp, strict=True) if a is not None and b is not None]
    numbers = {"target": 100 * target, "asp": "–", "bsp": "–"}
    if len(reached) < len(asp):
        return Finding("asp_learns_sooner", numbers, "undecided", timed=True)
    times = by_rounds(*zip(*reached, strict=True))
    numbers |= {"asp": f"{times.first:.1f} s", "bsp": f"{times.second:.1f} s"}
    return Finding("asp_learns_sooner", numbers, first_lower(times), times.pairs)


def _faster(claim: str, fast: Sequence[float], slow: Sequence[float]) -> Finding:
    rates = by_rounds(fast, slow)
    numbers = {"fast": rates.first, "slow": rates.second, "ratio": rates.ratio, "percent": _percent()}
    verdict = first_higher(by_rounds(fast, [MARGIN * each for each in slow]))
    return Finding(claim, numbers, verdict, timed=True)


def _percent() -> float:
    return 100 * (MARGIN - 1)
