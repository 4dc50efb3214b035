"""What the part claims: each claim a function of numbers alone, so that a test can feed it either outcome.

A way counts as faster only if it is by a margin: two runs of one way follow each other, and the machine changes.
"""

from collections.abc import Sequence

from shoal.labs.numbers import whether
from shoal.report.findings import Finding, Measured, higher, inside_run, lower

MARGIN = 1.1
"""How many times as many samples per second count as faster."""
NEAR_SUM = 0.8
"""The part of Σ 1/tᵢ that a way without waiting reaches, with its communication."""


def slowest_sets_the_pace(bsp: Measured, ideal: Measured) -> Finding:
    """With a straggler, bsp stays far below Σ 1/tᵢ."""
    numbers = {"bsp": bsp, "ideal": ideal, "part": 100 * bsp.value / ideal.value, "percent": _percent()}
    return Finding("slowest_sets_the_pace", numbers, lower(bsp.scaled(MARGIN), ideal))


def asp_is_faster(asp: Measured, bsp: Measured) -> Finding:
    """With a straggler, asp processes more samples per second than bsp."""
    return _faster("asp_is_faster", asp, bsp)


def asp_reaches_the_sum(asp: Measured, ideal: Measured) -> Finding:
    """asp reaches Σ 1/tᵢ, less what communication and the meeting at the end of an epoch cost."""
    numbers = {"asp": asp, "ideal": ideal, "part": 100 * asp.value / ideal.value, "percent": 100 * NEAR_SUM}
    return Finding("asp_reaches_the_sum", numbers, higher(asp, ideal.scaled(NEAR_SUM)))


def backup_is_faster(backup: Measured, bsp: Measured) -> Finding:
    """With a straggler, bsp with a backup worker is faster than without, although it drops gradients."""
    return _faster("backup_is_faster", backup, bsp)


def balanced_is_faster(balanced: Measured, bsp: Measured) -> Finding:
    """With a straggler, shares by speed are faster than equal shares."""
    return _faster("balanced_is_faster", balanced, bsp)


def ssp_waits_for_a_constant_straggler(asp: Measured, ssp: Measured) -> Finding:
    """With a worker that is always slow, ssp is slower than asp: its bound is reached soon."""
    return _faster("ssp_waits_for_a_constant_straggler", asp, ssp)


def ssp_absorbs_passing_delays(ssp: Measured, bsp: Measured) -> Finding:
    """With delays that pass, ssp is faster than bsp."""
    return _faster("ssp_absorbs_passing_delays", ssp, bsp)


def ssp_keeps_its_bound(broken: int, updates: int, bound: int) -> Finding:
    """Under ssp, every gradient knows all updates that are more than s steps old."""
    numbers = {"broken": broken, "updates": updates, "bound": bound}
    return Finding("ssp_keeps_its_bound", numbers, whether(updates > 0 and broken == 0))


def slow_worker_is_stalest(slow: Sequence[int], others: Sequence[int]) -> Finding:
    """Under asp, the updates of the slow worker are staler than those of the others."""
    numbers = {"slow": inside_run(slow), "others": inside_run(others)}
    return Finding("slow_worker_is_stalest", numbers, higher(numbers["slow"], numbers["others"]))


def asp_learns_sooner(asp: Measured | None, bsp: Measured | None, target: float) -> Finding:
    """With a straggler, asp reaches an accuracy sooner than bsp."""
    numbers = {"asp": _shown(asp), "bsp": _shown(bsp), "target": 100 * target}
    if asp is None or bsp is None:
        return Finding("asp_learns_sooner", numbers, "undecided")
    return Finding("asp_learns_sooner", numbers, lower(asp, bsp))


def _faster(claim: str, fast: Measured, slow: Measured) -> Finding:
    numbers = {"fast": fast, "slow": slow, "ratio": fast.value / slow.value, "percent": _percent()}
    return Finding(claim, numbers, higher(fast, slow.scaled(MARGIN)))


def _percent() -> float:
    return 100 * (MARGIN - 1)


def _shown(measured: Measured | None) -> str:
    return "–" if measured is None else f"{measured:.1f} s"
