"""From what was measured to the lab's findings."""

from collections.abc import Mapping

from shoal.labs.analysis import Groups
from shoal.labs.lab2 import claims
from shoal.labs.lab2.averaging import CALLS
from shoal.labs.lab2.branches import MESSAGES
from shoal.labs.lab2.measure import Faulty, Measurements, as_labelled, loss_gaps, stage_times
from shoal.labs.lab2.plan import FAULTS, RULES, SLOWDOWN
from shoal.report.findings import Finding


def find(measured: Measurements) -> list[Finding]:
    """Every finding, from what was measured."""
    return [*_collectives(measured), *_aggregation(measured), *_bottlenecks(measured), *_faults(measured)]


def _collectives(measured: Measurements) -> list[Finding]:
    even = {name: times.exchange_ms for name, times in measured.branches["even"].items()}
    all_reduce = measured.branches["even"]["all_reduce"]
    recorded = measured.recorded
    return [
        claims.same_sum(
            {name: sums.error for name, sums in measured.sums.items()},
            {name: sums.same_bits for name, sums in measured.sums.items()},
        ),
        claims.labels({name: as_labelled(name, record) for name, record in recorded.items()}),
        claims.bytes_sent(
            {name: recorded[name].sent for name in MESSAGES},
            {name: recorded[name].predicted or 0 for name in MESSAGES},
            measured.parameters,
        ),
        claims.all_reduce_beats_gather(even["all_reduce"], even["gather_broadcast"]),
        claims.all_reduce_beats_all_gather(even["all_reduce"], even["all_gather"]),
        claims.waiting_is_less(all_reduce.wait_ms, all_reduce.move_ms),
    ]


def _aggregation(measured: Measurements) -> list[Finding]:
    apart, learnt, size = measured.differences, measured.learnt, measured.plan.size
    return [
        claims.sum_is_scaled_mean(apart["sum"], measured.plan.workers),
        claims.sum_learns_faster(learnt["sgd-sum"].loss, learnt["sgd-mean"].loss, size.learn_steps),
        claims.adam_indifferent(
            loss_gaps(learnt["adam-sum"], learnt["adam-mean"]),
            loss_gaps(learnt["sgd-sum"], learnt["sgd-mean"]),
        ),
        claims.parameters_equal_gradients(apart["parameters"]),
        claims.adam_parameters_differ(apart["adam-parameters"]),
        claims.stages_equal(apart["stages"]),
        claims.stages_faster(*stage_times(measured.link_stage_steps)),
    ]


def _bottlenecks(measured: Measurements) -> list[Finding]:
    paces, apart = measured.paces, measured.differences
    compute, link = measured.branches["compute"], measured.branches["link"]
    return [
        claims.slow_worker_keeps_all_waiting(paces["even"].wait_ms, paces["compute"].wait_ms),
        claims.no_collective_helps([compute[name].wait_ms for name in CALLS]),
        claims.slow_link_moves(paces["even"].move_ms, paces["link"].move_ms),
        claims.slow_link_choice(link["gather_broadcast"].move_ms, link["by:ring"].move_ms),
        claims.throughput_falls(paces["even"].samples_per_s, paces["compute"].samples_per_s, SLOWDOWN),
        claims.balance_brings_back(paces["compute"].samples_per_s, paces["compute-balanced"].samples_per_s),
        claims.balance_changes_nothing(apart["balanced"], measured.plan.size.equal_steps),
        claims.exact_on_uneven(apart["uneven-exact"], apart["uneven-weighted_mean"]),
        claims.mean_of_means_differs(apart["uneven-mean"], apart["uneven-exact"]),
        claims.mean_of_means_costs(
            measured.learnt["uneven-exact"].accuracy, measured.learnt["uneven-mean"].accuracy
        ),
    ]


def _faults(measured: Measurements) -> list[Finding]:
    faulty = measured.faulty
    clean = {rule: _accuracy(faulty["none", rule]) or 0.0 for rule in RULES}
    mean, krum = (faulty["none", rule].accuracy for rule in ("mean", "krum"))
    assert mean is not None, "without a bad worker no run is stopped"
    assert krum is not None, "without a bad worker no run is stopped"
    return [
        claims.nan_is_stopped(bool(faulty["nan", "mean"].stopped)),
        claims.huge_breaks_the_mean(clean["mean"], _accuracy(faulty["huge", "mean"])),
        claims.flip_breaks_the_mean(clean["mean"], _accuracy(faulty["flip", "mean"])),
        claims.median_bears(clean["median"], _worst(faulty, "median")),
        claims.trimmed_mean_bears(clean["trimmed_mean"], _worst(faulty, "trimmed_mean")),
        claims.krum_bears(clean["krum"], _worst(faulty, "krum")),
        claims.krum_costs(mean, krum),
    ]


def _accuracy(faulty: Faulty) -> float | None:
    return None if faulty.accuracy is None else faulty.accuracy.value


def _worst(faulty: Mapping[tuple[str, str], Faulty], rule: str) -> float | None:
    """The lowest accuracy of a rule under any fault; none if any run of it was stopped."""
    found = [_accuracy(faulty[fault, rule]) for fault in FAULTS if fault != "none"]
    return None if None in found else min(value for value in found if value is not None)


GROUPS: Groups = {
    "collectives": (
        claims.same_sum,
        claims.labels,
        claims.bytes_sent,
        claims.all_reduce_beats_gather,
        claims.all_reduce_beats_all_gather,
        claims.waiting_is_less,
    ),
    "aggregation": (
        claims.sum_is_scaled_mean,
        claims.sum_learns_faster,
        claims.adam_indifferent,
        claims.parameters_equal_gradients,
        claims.adam_parameters_differ,
    ),
    "stages": (claims.stages_equal, claims.stages_faster),
    "bottleneck": (
        claims.slow_worker_keeps_all_waiting,
        claims.no_collective_helps,
        claims.slow_link_moves,
        claims.slow_link_choice,
        claims.throughput_falls,
        claims.balance_brings_back,
        claims.balance_changes_nothing,
    ),
    "uneven": (claims.exact_on_uneven, claims.mean_of_means_differs, claims.mean_of_means_costs),
    "faults": (
        claims.nan_is_stopped,
        claims.huge_breaks_the_mean,
        claims.flip_breaks_the_mean,
        claims.median_bears,
        claims.trimmed_mean_bears,
        claims.krum_bears,
        claims.krum_costs,
    ),
}
"""The sections of the analysis."""
