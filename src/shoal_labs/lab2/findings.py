"""The lab's findings, from its measurements."""

from collections.abc import Mapping, Sequence
from statistics import median

from shoal.report.findings import Finding, Measured, accuracy_over, of_samples
from shoal.report.paired import Paired, by_rounds, by_seeds
from shoal_labs.lab2 import claims
from shoal_labs.lab2.averaging import CALLS
from shoal_labs.lab2.branches import MESSAGES
from shoal_labs.lab2.measure import Faulty, Lab2Measurements, as_labelled, stage_times
from shoal_labs.lab2.plan import FAULTS, RULES, SLOWDOWN, TURNS
from shoal_labs.page.analysis import Findings


def find(measured: Lab2Measurements) -> Findings:
    """Every finding, by section of the analysis."""
    return {
        "collectives": _collectives(measured),
        "aggregation": _aggregation(measured),
        "stages": [
            claims.stages_equal(measured.differences["stages"]),
            claims.stages_faster(stage_times(measured.link_stage_steps)),
            claims.combine_stages_learn(
                by_seeds(measured.learnt["sgd-mean"].losses, measured.learnt["sgd-stages"].losses),
                measured.plan.size.learn_steps,
            ),
        ],
        "bottleneck": _bottlenecks(measured),
        "uneven": _uneven(measured),
        "faults": _faults(measured),
    }


def _collectives(measured: Lab2Measurements) -> list[Finding]:
    even = measured.contests["even"]
    exchange, name = even.exchange_ms, "all_reduce"
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
        claims.all_reduce_beats_gather(by_rounds(exchange[name], exchange["gather_broadcast"])),
        claims.all_reduce_beats_all_gather(by_rounds(exchange[name], exchange["all_gather"])),
        claims.waiting_is_less(by_rounds(even.wait_ms[name], even.move_ms[name])),
    ]


def _aggregation(measured: Lab2Measurements) -> list[Finding]:
    apart, learnt, size = measured.differences, measured.learnt, measured.plan.size
    return [
        claims.sum_is_scaled_mean(apart["sum"], measured.plan.workers),
        claims.sum_learns_faster(
            by_seeds(learnt["sgd-mean"].losses, learnt["sgd-sum"].losses), size.learn_steps
        ),
        claims.adam_indifferent(
            by_seeds(
                *(
                    [
                        abs(a - b)
                        for a, b in zip(
                            learnt[f"{name}-sum"].losses, learnt[f"{name}-mean"].losses, strict=True
                        )
                    ]
                    for name in ("adam", "sgd")
                )
            )
        ),
        claims.parameters_equal_gradients(apart["parameters"]),
        claims.adam_parameters_differ(apart["adam-parameters"]),
    ]


def _bottlenecks(measured: Lab2Measurements) -> list[Finding]:
    apart = measured.differences
    compute, link = measured.contests["compute"].wait_ms, measured.contests["link"].move_ms
    turns = measured.turns
    even, slow, balanced, slow_link = (turns[name] for name in TURNS)
    return [
        claims.slow_worker_keeps_all_waiting(by_rounds(slow.wait_ms, even.wait_ms)),
        claims.no_collective_helps(shortest_and_half_of_longest([compute[name] for name in CALLS])),
        claims.slow_link_moves(by_rounds(slow_link.move_ms, even.move_ms)),
        claims.slow_link_choice(by_rounds(link["gather_broadcast"], link["by:ring"])),
        claims.throughput_falls(by_rounds(slow.samples_per_s, even.samples_per_s), SLOWDOWN),
        claims.balance_brings_back(by_rounds(balanced.samples_per_s, slow.samples_per_s)),
        claims.balance_changes_nothing(apart["balanced"], measured.plan.size.equal_steps),
    ]


def shortest_and_half_of_longest(times: Sequence[Sequence[float]]) -> Paired:
    """Of several series of rounds, the one with the lowest median beside half of the one with the highest.

    >>> pair = shortest_and_half_of_longest([[3.0, 3.0], [8.0, 6.0], [4.0, 4.0]])
    >>> pair.first.value, pair.second.value, pair.difference.value
    (3.0, 3.5, -0.5)
    """
    ordered = sorted(times, key=median)
    return by_rounds(ordered[0], [each / 2 for each in ordered[-1]])


def _uneven(measured: Lab2Measurements) -> list[Finding]:
    apart = measured.differences
    return [
        claims.exact_on_uneven(apart["uneven-exact"], apart["uneven-weighted_mean"]),
        claims.mean_of_means_differs(apart["uneven-mean"], apart["uneven-exact"]),
        claims.mean_of_means_costs(
            by_seeds(measured.learnt["uneven-mean"].losses, measured.learnt["uneven-exact"].losses)
        ),
    ]


def _faults(measured: Lab2Measurements) -> list[Finding]:
    faulty = measured.faulty
    count = measured.test_samples
    clean = {rule: accuracy_over(faulty["none", rule].accuracies, count) for rule in RULES}
    return [
        claims.nan_is_stopped(bool(faulty["nan", "mean"].stopped)),
        claims.huge_breaks_the_mean(clean["mean"], _accuracy(faulty["huge", "mean"], count)),
        claims.flip_breaks_the_mean(clean["mean"], _accuracy(faulty["flip", "mean"], count)),
        claims.median_tolerates(clean["median"], _worst(faulty, "median", count)),
        claims.trimmed_mean_tolerates(clean["trimmed_mean"], _worst(faulty, "trimmed_mean", count)),
        claims.krum_tolerates(clean["krum"], _worst(faulty, "krum", count)),
        claims.krum_costs(by_seeds(faulty["none", "mean"].accuracies, faulty["none", "krum"].accuracies)),
    ]


def _accuracy(faulty: Faulty, num_samples: int) -> Measured | None:
    return of_samples(faulty.accuracies[0], num_samples) if faulty.accuracies else None


def _worst(faulty: Mapping[tuple[str, str], Faulty], rule: str, num_samples: int) -> Measured | None:
    """The lowest accuracy of a rule under any fault; None if any run was stopped."""
    found = [_accuracy(faulty[fault, rule], num_samples) for fault in FAULTS if fault != "none"]
    known = [each for each in found if each is not None]
    return min(known, key=lambda each: each.value) if len(known) == len(found) else None
