"""The lab's claims."""

from collections.abc import Mapping, Sequence

from shoal.kit.base import Phrase
from shoal.kit.findings import (
    SPREADS,
    Finding,
    Measured,
    Number,
    Paired,
    Verdict,
    by_rounds,
    inside_run,
    typical,
)
from shoal.kit.runs import FIRST_STEP_BOUND
from shoal.kit.strategies import FORMULAS, UNIT_TIMES
from shoal_labs.claims import Bound, Claim, Computed, Pair
from shoal_labs.lab4.measure import Lab4Measurements
from shoal_labs.lab4.plan import MICROBATCHES

NEAR = 0.1
"""A bubble this close to its formula counts as equal to it."""


def _differences(measured: Lab4Measurements) -> dict[str, Number]:
    """From one machine's state after the first step."""
    apart = {name: measured.ways[name].first_step for name in measured.divided}
    worst = max(apart, key=lambda name: apart[name])
    return {
        "ways": len(apart),
        "worst": Phrase(f"way.{worst}"),
        "difference": apart[worst],
        "bound": FIRST_STEP_BOUND,
    }


def _held(measured: Lab4Measurements) -> dict[str, Number]:
    """KiB of parameters and optimizer state: of one machine, and of the worker that holds most."""
    one = measured.ways["single"].held[0].total
    most = {name: max(held.total for held in measured.ways[name].held) for name in ("rpc", "1f1b", "tensor")}
    shares = {
        name: {"way": Phrase(f"way.{name}"), "percent": 100 * held / one} for name, held in most.items()
    }
    return {
        "one": one / 2**10,
        "most": max(most.values()) / 2**10,
        "shares": tuple(Phrase("each.share", share) for share in shares.values()),
    }


def _live(measured: Lab4Measurements) -> dict[str, Number]:
    """Micro-batches whose activations each stage holds, under GPipe and 1F1B."""
    gpipe, one = (measured.pipelined[name].live for name in ("gpipe", "1f1b"))
    return {
        "gpipe": tuple(map(str, gpipe)),
        "one": tuple(map(str, one)),
        "no_more": all(ours <= theirs for ours, theirs in zip(one, gpipe, strict=True)),
        "fewer": sum(one) < sum(gpipe),
    }


def _faster(name: str, rule: str, slower: str, faster: str) -> Pair[Lab4Measurements]:
    """Two schedules, and how much faster the second would be if messages took no time."""

    def also(measured: Lab4Measurements) -> Mapping[str, Number]:
        spans = [measured.pipelined[each].ideal.makespan for each in (slower, faster)]
        return {"gain": measured.compared(slower, faster).ratio, "ideal": spans[0] / spans[1]}

    return Pair(name, rule, lambda m: m.compared(slower, faster), also)


def _over_rpc(measured: Lab4Measurements) -> Paired:
    return measured.compared("rpc", f"rpc-{MICROBATCHES}")


def _rpc_bound(measured: Lab4Measurements) -> dict[str, Number]:
    work_ms = measured.ways["rpc"].work_ms
    return {
        "gain": _over_rpc(measured).ratio,
        "microbatches": MICROBATCHES,
        "bound": overlap_bound(work_ms, MICROBATCHES),
        "slowest": 100 * max(work_ms) / sum(work_ms),
    }


def overlap_bound(work_ms: Sequence[float], microbatches: int) -> float:
    """How many times as fast stages can be that overlap: Σt / (max t + (Σt − max t) / m).

    >>> overlap_bound([1.0, 1.0], 1), overlap_bound([1.0, 1.0], 4)
    (1.0, 1.6)
    """
    total, slowest = sum(work_ms), max(work_ms)
    return total / (slowest + (total - slowest) / microbatches) if total else 1.0


def _bubbles(measured: Lab4Measurements) -> dict[int, Sequence[float]]:
    """By number of micro-batches, round by round."""
    return {count: measured.rounds[name].bubble for count, name in measured.plan.counted().items()}


def _fewest_and_most(measured: Lab4Measurements) -> Paired:
    bubbles = _bubbles(measured)
    return by_rounds(bubbles[min(bubbles)], bubbles[max(bubbles)])


def bubble_as_formula(measured: Lab4Measurements) -> Finding:
    """The measured bubble is the formula's, for stages of equal time."""
    bubbles, counted = _bubbles(measured), measured.plan.counted()
    predicted = {m: FORMULAS["1f1b"].bubble_of(measured.plan.workers, m, UNIT_TIMES) for m in bubbles}
    ideal = {m: measured.pipelined[name].ideal.bubble for m, name in counted.items()}
    numbers: dict[str, Number] = {
        "bubbles": tuple(
            Phrase(
                "each.bubble",
                {"count": m, "measured": inside_run(bubbles[m]).scaled(100), "formula": 100 * predicted[m]},
            )
            for m in bubbles
        ),
        "ideal": tuple(Phrase("each.ideal", {"count": m, "percent": 100 * ideal[m]}) for m in ideal),
        "near": 100 * NEAR,
    }
    verdicts = [_near(typical(bubbles[m]), predicted[m]) for m in bubbles]
    verdict: Verdict = "holds" if set(verdicts) == {"holds"} else "undecided"
    return Finding("bubble_as_formula", numbers, "fails" if "fails" in verdicts else verdict, timed=True)


def _near(measured: Measured, predicted: float) -> Verdict:
    apart, noise = abs(measured.value - predicted), SPREADS * measured.spread
    if measured.basis == "none":
        return "undecided"
    if apart - noise > NEAR:
        return "fails"
    return "holds" if apart <= NEAR and noise <= NEAR else "undecided"


def _slowest_ms(measured: Lab4Measurements) -> dict[str, float]:
    """The slowest stage of every cut."""
    return {layer: max(measured.pipelined[name].stage_ms) for layer, name in measured.plan.cuts().items()}


def _two_cuts(measured: Lab4Measurements) -> tuple[str, str]:
    """The cut whose slowest stage takes the least time, and the fastest other."""
    slowest, cuts = _slowest_ms(measured), measured.plan.cuts()
    balanced = min(slowest, key=lambda layer: slowest[layer])
    others = [layer for layer in cuts if layer != balanced]
    return balanced, min(others, key=lambda layer: measured.ways[cuts[layer]].step_ms.value)


def _compared_cuts(measured: Lab4Measurements) -> Paired:
    return measured.compared(*(measured.plan.cuts()[layer] for layer in _two_cuts(measured)))


def _cut_numbers(measured: Lab4Measurements) -> dict[str, Number]:
    balanced, rival = _two_cuts(measured)
    stages = tuple(f"{layer} {value:.2f} ms" for layer, value in _slowest_ms(measured).items())
    return {"balanced": balanced, "rival": rival, "stages": stages}


def _best(measured: Lab4Measurements) -> str:
    """The fastest division that took turns with one process."""
    in_turns = measured.plan.contests()["schedules"]
    timed = [name for name in measured.divided if name in in_turns]
    return min(timed, key=lambda name: measured.ways[name].step_ms.value)


def _best_and_one(measured: Lab4Measurements) -> Paired:
    return measured.compared(_best(measured), measured.one_process)


def _best_numbers(measured: Lab4Measurements) -> dict[str, Number]:
    return {"name": Phrase(f"way.{_best(measured)}"), "ratio": _best_and_one(measured).ratio}


CLAIMS: tuple[Claim[Lab4Measurements], ...] = (
    Bound("equals_one_machine", "difference <= bound", _differences),
    Bound("memory_is_divided", "most < one", _held),
    Bound("fewer_activations", "no_more and fewer", _live),
    Pair("microbatches_shorten_rpc", "whole > parts", _over_rpc, _rpc_bound),
    _faster("overlap_shortens", "sequential > gpipe", "sequential", "gpipe"),
    _faster("zero_bubble_shortens", "one > zero", "1f1b", "zero-bubble"),
    Pair(
        "bubble_falls",
        "few > many",
        _fewest_and_most,
        lambda m: {"fewest": min(_bubbles(m)), "most": max(_bubbles(m))},
        scale=100,
    ),
    Computed("bubble_as_formula", bubble_as_formula),
    Pair("balanced_cut_fastest", "its < other", _compared_cuts, _cut_numbers),
    Pair("does_not_pay", "best > one", _best_and_one, _best_numbers),
)
