"""The lab's findings: each a function of numbers alone, so that a test can feed it either outcome."""

from collections.abc import Mapping, Sequence

from shoal.compare.weight_difference import FIRST_STEP_BOUND
from shoal.report.findings import SPREADS, Finding, Measured, Verdict, inside_run
from shoal.report.paired import Paired, by_rounds, first_higher, first_lower, typical
from shoal.strategies.pipeline.schedules import FORMULAS
from shoal.strategies.pipeline.timing import UNIT_TIMES
from shoal.words import Phrase
from shoal_labs.lab4.measure import Lab4Measurements
from shoal_labs.lab4.plan import MICROBATCHES, SCHEDULES
from shoal_labs.numbers import scientific, whether
from shoal_labs.page.analysis import Findings

NEAR = 0.1
"""A bubble this close to its formula counts as equal to it."""


# ── one machine ──


def equals_one_machine(differences: Mapping[str, float]) -> Finding:
    """After the first step every division has the state of one machine."""
    worst = max(differences, key=lambda name: differences[name])
    numbers = {
        "ways": len(differences),
        "worst": Phrase(f"way.{worst}"),
        "difference": scientific(differences[worst]),
        "bound": scientific(FIRST_STEP_BOUND),
    }
    return Finding("equals_one_machine", numbers, whether(differences[worst] <= FIRST_STEP_BOUND))


# ── memory ──


def memory_is_divided(one: int, largest: Mapping[str, int]) -> Finding:
    """The worker that holds most holds less than one machine. Bytes of parameters and optimizer state."""
    numbers = {
        "one": one / 2**10,
        "shares": tuple(
            Phrase("each.share", {"way": Phrase(f"way.{name}"), "percent": 100 * held / one})
            for name, held in largest.items()
        ),
    }
    return Finding("memory_is_divided", numbers, whether(max(largest.values()) < one))


def fewer_activations(gpipe: Sequence[int], one_f_one_b: Sequence[int]) -> Finding:
    """1F1B holds the activations of fewer micro-batches than GPipe; counted stage by stage."""
    numbers = {"gpipe": tuple(map(str, gpipe)), "one": tuple(map(str, one_f_one_b))}
    no_more = all(ours <= theirs for ours, theirs in zip(one_f_one_b, gpipe, strict=True))
    return Finding("fewer_activations", numbers, whether(no_more and sum(one_f_one_b) < sum(gpipe)))


# ── overlap ──


def overlap_shortens(steps: Paired, ideal: float) -> Finding:
    """A pipeline whose stages overlap is faster than one in which they take turns (first). Times in ms."""
    numbers = {"sequential": steps.first, "gpipe": steps.second, "gain": steps.ratio, "ideal": ideal}
    return Finding("overlap_shortens", numbers, first_higher(steps), steps.pairs)


def zero_bubble_shortens(steps: Paired, ideal: float) -> Finding:
    """Backward in two halves is faster than 1F1B (first)."""
    numbers = {"one": steps.first, "zero": steps.second, "gain": steps.ratio, "ideal": ideal}
    return Finding("zero_bubble_shortens", numbers, first_higher(steps), steps.pairs)


def microbatches_shorten_rpc(steps: Paired, microbatches: int, work_ms: Sequence[float]) -> Finding:
    """Micro-batches (second) shorten a step over RPC; bounded by the computing time of the slowest worker."""
    numbers = {
        "whole": steps.first,
        "parts": steps.second,
        "gain": steps.ratio,
        "microbatches": microbatches,
        "bound": overlap_bound(work_ms, microbatches),
        "slowest": 100 * max(work_ms) / sum(work_ms),
    }
    return Finding("microbatches_shorten_rpc", numbers, first_higher(steps), steps.pairs)


def overlap_bound(work_ms: Sequence[float], microbatches: int) -> float:
    """How many times as fast stages can be that overlap: Σt / (max t + (Σt − max t) / m).

    >>> overlap_bound([1.0, 1.0], 1), overlap_bound([1.0, 1.0], 4)
    (1.0, 1.6)
    """
    total, slowest = sum(work_ms), max(work_ms)
    return total / (slowest + (total - slowest) / microbatches) if total else 1.0


# ── micro-batches ──


def bubble_falls(bubbles: Paired, counts: tuple[int, int]) -> Finding:
    """With more micro-batches (second), stages wait for a smaller part of the time."""
    few, many = bubbles.first.scaled(100), bubbles.second.scaled(100)
    numbers = {"few": few, "many": many, "fewest": counts[0], "most": counts[1]}
    return Finding("bubble_falls", numbers, first_higher(bubbles), bubbles.pairs)


def bubble_as_formula(
    measured: Mapping[int, Sequence[float]], stages: int, ideal: Mapping[int, float]
) -> Finding:
    """The measured bubble is that of the formula for stages of equal time.

    `measured`: round by round. `ideal`: with the measured stage times.
    """
    predicted = {m: FORMULAS["1f1b"].bubble_of(stages, m, UNIT_TIMES) for m in measured}
    numbers = {
        "bubbles": tuple(
            Phrase(
                "each.bubble",
                {"count": m, "measured": inside_run(measured[m]).scaled(100), "formula": 100 * predicted[m]},
            )
            for m in measured
        ),
        "ideal": tuple(Phrase("each.ideal", {"count": m, "percent": 100 * ideal[m]}) for m in ideal),
        "near": 100 * NEAR,
    }
    verdicts = [_near(typical(measured[m]), predicted[m]) for m in measured]
    verdict: Verdict = "holds" if set(verdicts) == {"holds"} else "undecided"
    return Finding("bubble_as_formula", numbers, "fails" if "fails" in verdicts else verdict, timed=True)


def _near(measured: Measured, predicted: float) -> Verdict:
    apart, noise = abs(measured.value - predicted), SPREADS * measured.spread
    if measured.basis == "none":
        return "undecided"
    if apart - noise > NEAR:
        return "fails"
    return "holds" if apart <= NEAR and noise <= NEAR else "undecided"


# ── the cut ──


def balanced_cut_fastest(
    steps: Paired, balanced: str, rival: str, slowest_ms: Mapping[str, float]
) -> Finding:
    """The cut whose slowest stage takes the least time (first) is faster than the fastest other."""
    numbers = {
        "balanced": balanced,
        "its": steps.first,
        "rival": rival,
        "other": steps.second,
        "stages": tuple(f"{layer} {value:.2f} ms" for layer, value in slowest_ms.items()),
    }
    return Finding("balanced_cut_fastest", numbers, first_lower(steps), steps.pairs)


# ── does it pay ──


def does_not_pay(steps: Paired, name: str) -> Finding:
    """The fastest division of the model (first) is slower than one process."""
    numbers = {"one": steps.second, "best": steps.first, "name": Phrase(f"way.{name}"), "ratio": steps.ratio}
    return Finding("does_not_pay", numbers, first_higher(steps), steps.pairs)


def find(measured: Lab4Measurements) -> Findings:
    """All findings, by section of the analysis."""
    plan, ways, pipelined, compared = measured.plan, measured.ways, measured.pipelined, measured.compared
    counted = plan.counted()
    bubbles = {count: measured.rounds[name].bubble for count, name in counted.items()}
    fewest, most = min(counted), max(counted)
    in_turns = plan.contests()["schedules"]
    best = min(
        (name for name in measured.divided if name in in_turns), key=lambda name: ways[name].step_ms.value
    )
    spans = {name: pipelined[name].ideal.makespan for name in SCHEDULES}
    return {
        "one_machine": [equals_one_machine({name: ways[name].first_step for name in measured.divided})],
        "memory": [
            memory_is_divided(
                ways["single"].held[0].total,
                {name: max(held.total for held in ways[name].held) for name in ("rpc", "1f1b", "tensor")},
            ),
            fewer_activations(pipelined["gpipe"].live, pipelined["1f1b"].live),
        ],
        "overlap": [
            microbatches_shorten_rpc(
                compared("rpc", f"rpc-{MICROBATCHES}"), MICROBATCHES, ways["rpc"].work_ms
            ),
            overlap_shortens(compared("sequential", "gpipe"), spans["sequential"] / spans["gpipe"]),
            zero_bubble_shortens(compared("1f1b", "zero-bubble"), spans["1f1b"] / spans["zero-bubble"]),
        ],
        "bubble": [
            bubble_falls(by_rounds(bubbles[fewest], bubbles[most]), (fewest, most)),
            bubble_as_formula(
                bubbles,
                plan.workers,
                {count: pipelined[name].ideal.bubble for count, name in counted.items()},
            ),
        ],
        "cut": [_cut(measured)],
        "pay": [does_not_pay(compared(best, measured.one_process), best)],
    }


def _cut(measured: Lab4Measurements) -> Finding:
    cuts = measured.plan.cuts()
    slowest_ms = {layer: max(measured.pipelined[name].stage_ms) for layer, name in cuts.items()}
    balanced = min(slowest_ms, key=lambda layer: slowest_ms[layer])
    others = [layer for layer in cuts if layer != balanced]
    rival = min(others, key=lambda layer: measured.ways[cuts[layer]].step_ms.value)
    steps = measured.compared(cuts[balanced], cuts[rival])
    return balanced_cut_fastest(steps, balanced, rival, slowest_ms)
