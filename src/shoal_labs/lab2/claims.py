"""What the lab claims: each claim a function of numbers alone, so that a test can feed it either outcome."""

import math
from collections.abc import Mapping

from shoal.report.findings import Finding, Measured, Verdict
from shoal.report.paired import STUDENT, Paired, first_higher, first_lower
from shoal.words import Phrase
from shoal_labs.numbers import scientific, whether

ROUNDING = 1e-5
"""A relative difference of weights or sums below this is rounding in float32, carried through a few steps."""
PARTLY = 0.1
"""A rule that loses at most this much accuracy to a faulty worker tolerates it."""
RUINED = 0.5
"""A training that keeps less than this part of its accuracy is ruined."""


# ── the collectives ──


def same_sum(errors: Mapping[str, float], same_bits: Mapping[str, bool]) -> Finding:
    """Every branch leaves the sum in every worker's bucket, and the same bits in all of them."""
    worst = max(errors.values())
    return Finding(
        "same_sum",
        {"branches": len(errors), "worst": scientific(worst), "same": all(same_bits.values())},
        whether(worst <= ROUNDING and all(same_bits.values())),
    )


def labels(labelled: Mapping[str, bool]) -> Finding:
    """Every branch called what its label says, in every step of every turn, and nothing else."""
    wrong = [branch for branch, right in labelled.items() if not right]
    numbers = {"right": len(labelled) - len(wrong), "branches": len(labelled)}
    return Finding("labels", numbers, whether(not wrong))


def bytes_sent(sent: Mapping[str, int], predicted: Mapping[str, int], parameters: int) -> Finding:
    """Every algorithm sends as much as its formula says: the ring 2(W − 1)/W buffers, central W − 1 of rank 0."""
    numbers = {
        "ring": sent["by:ring"] / 4 / parameters,
        "central": sent["by:central"] / 4 / parameters,
        "right": sum(sent[name] == predicted[name] for name in predicted),
        "algorithms": len(predicted),
    }
    return Finding("bytes_sent", numbers, whether(sent == predicted))


def all_reduce_beats_gather(times: Paired) -> Finding:
    """All-reduce takes less time than gathering at one worker and sending the sum back (second)."""
    numbers = {"all_reduce": times.first, "gather": times.second}
    return Finding("all_reduce_beats_gather", numbers, first_lower(times), times.pairs)


def all_reduce_beats_all_gather(times: Paired) -> Finding:
    """All-reduce takes less time than an all-gather after which everyone adds for itself (second)."""
    numbers = {"all_reduce": times.first, "all_gather": times.second}
    return Finding("all_reduce_beats_all_gather", numbers, first_lower(times), times.pairs)


def waiting_is_less(times: Paired) -> Finding:
    """Where all workers are equally fast, an all-reduce is more moving (second) than waiting."""
    numbers = {"wait": times.first, "move": times.second}
    return Finding("waiting_is_less", numbers, first_lower(times), times.pairs)


# ── what is aggregated, and how ──


def sum_is_scaled_mean(difference: float, workers: int) -> Finding:
    """For SGD the sum at a learning rate η equals the mean at η·W."""
    numbers = {"difference": scientific(difference), "bitwise": difference == 0, "workers": workers}
    return Finding("sum_is_scaled_mean", numbers, whether(difference <= ROUNDING))


def sum_learns_faster(losses: Paired, steps: int) -> Finding:
    """For SGD at the same learning rate, the sum ends with a lower loss than the mean (first)."""
    numbers = {"sum": losses.second, "mean": losses.first, "lead": losses.difference.value, "steps": steps}
    return Finding("sum_learns_faster", numbers, first_higher(losses), losses.pairs)


def adam_indifferent(changes: Paired) -> Finding:
    """Between sum and mean, Adam's loss changes less than SGD's; each the difference of two runs of one seed."""
    numbers = {"adam": changes.first, "sgd": changes.second}
    return Finding("adam_indifferent", numbers, first_lower(changes), changes.pairs)


def parameters_equal_gradients(difference: float) -> Finding:
    """For SGD, averaging parameters after the update equals averaging gradients before it."""
    numbers = {"difference": scientific(difference)}
    return Finding("parameters_equal_gradients", numbers, whether(difference <= ROUNDING))


def adam_parameters_differ(difference: float) -> Finding:
    """For Adam, averaging parameters and averaging gradients differ."""
    numbers = {"difference": scientific(difference)}
    return Finding("adam_parameters_differ", numbers, whether(difference > ROUNDING))


def stages_equal(difference: float) -> Finding:
    """A training whose exchange changes twice ends with the weights of one that keeps to all-reduce."""
    return Finding("stages_equal", {"difference": scientific(difference)}, whether(difference <= ROUNDING))


def combine_stages_learn(losses: Paired, steps: int) -> Finding:
    """The sum in the first half and the mean in the second end with a lower loss than the mean throughout (first)."""
    numbers = {"stages": losses.second, "mean": losses.first, "steps": steps}
    return Finding("combine_stages_learn", numbers, first_higher(losses), losses.pairs)


def stages_faster(times: Paired) -> Finding:
    """Over a slow link, the exchange is faster around the ring than through one worker (first)."""
    numbers = {"first": times.first, "second": times.second}
    return Finding("stages_faster", numbers, first_higher(times), times.pairs)


# ── bottlenecks ──


def slow_worker_keeps_all_waiting(waits: Paired) -> Finding:
    """With a slow worker (first) the fast ones wait longer in every step."""
    numbers = {"even": waits.second, "slow": waits.first}
    return Finding("slow_worker_keeps_all_waiting", numbers, first_higher(waits), waits.pairs)


def no_collective_helps(waits: Paired) -> Finding:
    """With a slow worker every collective waits: the shortest waiting is more than half of the longest (second)."""
    numbers = {"shortest": waits.first, "longest": waits.second.scaled(2)}
    return Finding("no_collective_helps", numbers, first_higher(waits), waits.pairs)


def slow_link_moves(times: Paired) -> Finding:
    """Over a slow link (first), moving takes longer."""
    numbers = {"even": times.second, "slow": times.first}
    return Finding("slow_link_moves", numbers, first_higher(times), times.pairs)


def slow_link_choice(times: Paired) -> Finding:
    """Over a slow link, an exchange through one worker (first) takes longer than around the ring."""
    numbers = {"gather": times.first, "ring": times.second}
    return Finding("slow_link_choice", numbers, first_higher(times), times.pairs)


def throughput_falls(speeds: Paired, slowdown: float) -> Finding:
    """A slow worker (first) slows the whole training."""
    numbers = {"even": speeds.second, "slow": speeds.first, "ratio": speeds.ratio, "slowdown": slowdown}
    return Finding("throughput_falls", numbers, first_lower(speeds), speeds.pairs)


def balance_brings_back(speeds: Paired) -> Finding:
    """Dividing batches by measured speed (first) makes training faster again."""
    numbers = {"slow": speeds.second, "balanced": speeds.first, "ratio": speeds.ratio}
    return Finding("balance_brings_back", numbers, first_higher(speeds), speeds.pairs)


def balance_changes_nothing(difference: float, steps: int) -> Finding:
    """Balancing changes who computes a sample, not what is computed: the losses are the same."""
    numbers = {"difference": scientific(difference), "steps": steps}
    return Finding("balance_changes_nothing", numbers, whether(difference <= 100 * ROUNDING))


# ── uneven batches ──


def exact_on_uneven(exact: float, weighted: float) -> Finding:
    """The global count and the weighted mean both equal one machine, however the batch is divided."""
    numbers = {"exact": scientific(exact), "weighted": scientific(weighted)}
    return Finding("exact_on_uneven", numbers, whether(max(exact, weighted) <= ROUNDING))


def mean_of_means_differs(difference: float, exact: float) -> Finding:
    """The mean of means does not equal one machine."""
    numbers = {"difference": scientific(difference), "exact": scientific(exact)}
    return Finding("mean_of_means_differs", numbers, whether(difference > ROUNDING))


def mean_of_means_costs(losses: Paired) -> Finding:
    """The mean of means (first) ends with a higher loss, on batches that are the same for both."""
    numbers = {"exact": losses.second, "means": losses.first, "lead": losses.difference.value}
    return Finding("mean_of_means_costs", numbers, first_higher(losses), losses.pairs)


# ── a faulty worker ──


def nan_is_stopped(stopped: bool) -> Finding:
    """With the sum, a NaN is caught before it reaches the weights."""
    return Finding("nan_is_stopped", {"stopped": stopped}, whether(stopped))


def huge_breaks_the_mean(clean: Measured, faulty: Measured | None) -> Finding:
    """With the sum, one worker with huge gradients lowers the accuracy, or ruins the training."""
    return _accuracies("huge_breaks_the_mean", clean, faulty, broken=True)


def flip_breaks_the_mean(clean: Measured, faulty: Measured | None) -> Finding:
    """With the sum, one worker with flipped gradients lowers the accuracy, or ruins the training."""
    return _accuracies("flip_breaks_the_mean", clean, faulty, broken=True)


def median_tolerates(clean: Measured, worst: Measured | None) -> Finding:
    """The median tolerates one faulty worker of any kind."""
    return _accuracies("median_tolerates", clean, worst, broken=False)


def trimmed_mean_tolerates(clean: Measured, worst: Measured | None) -> Finding:
    """The trimmed mean tolerates one faulty worker of any kind."""
    return _accuracies("trimmed_mean_tolerates", clean, worst, broken=False)


def krum_tolerates(clean: Measured, worst: Measured | None) -> Finding:
    """Krum tolerates one faulty worker of any kind."""
    return _accuracies("krum_tolerates", clean, worst, broken=False)


def krum_costs(accuracies: Paired) -> Finding:
    """Without a faulty worker, Krum (second) ends with a lower accuracy than the mean."""
    mean, krum, lead = _percent(accuracies)
    numbers = {"mean": mean, "krum": krum, "lead": lead.value}
    return Finding("krum_costs", numbers, first_higher(accuracies), accuracies.pairs)


def _percent(accuracies: Paired) -> tuple[Measured, Measured, Measured]:
    scaled = accuracies.scaled(100)
    return scaled.first, scaled.second, scaled.difference


def _accuracies(claim: str, clean: Measured, faulty: Measured | None, broken: bool) -> Finding:
    """Accuracy without and with a bad worker; a run that was stopped has none."""
    shown = "–" if faulty is None else f"{faulty.scaled(100):.1f} %"
    numbers = {"clean": clean.scaled(100), "faulty": shown}
    lost, kept = _lost(clean, faulty)
    if not broken:
        return Finding(claim, numbers, kept)
    ruined = faulty is None or faulty.value < RUINED * clean.value
    harm = Phrase("harm.ruins") if ruined else Phrase("harm.lowers", {"points": 100 * PARTLY})
    return Finding(claim, {**numbers, "harm": harm}, lost)


def _lost(clean: Measured, faulty: Measured | None) -> tuple[Verdict, Verdict]:
    """Whether a faulty worker costs more accuracy than a rule may lose, and whether it does not."""
    if faulty is None:
        return "holds", "fails"
    lost = clean.value - faulty.value - PARTLY
    if abs(lost) <= STUDENT[-1] * math.hypot(clean.spread, faulty.spread):
        return "undecided", "undecided"
    return whether(lost > 0), whether(lost <= 0)
