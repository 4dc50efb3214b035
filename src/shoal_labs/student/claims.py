"""Claims about a student's code: each a function of numbers alone, so that a test can feed it either outcome."""

from collections.abc import Sequence
from typing import Literal

from shoal.kit.findings import Finding, Paired, first_higher, first_lower
from shoal_labs.lab2.check.averages import calls_only
from shoal_labs.lab3.claims import MARGIN
from shoal_labs.numbers import no_worse, whether

NAMES = (
    *(
        "own_equal",
        "own_nodes",
        "own_calls",
        "own_covers",
        "own_draws",
        "own_epochs",
        "own_trains",
        "own_split",
    ),
    *("own_gradient_shape", "own_gradient_first", "own_gradient_second"),
    *("own_uneven", "own_slow", "own_faster", "own_backward", "own_accuracy"),
)
"""All claims, in the order of the page."""
NEAR = 0.03
"""A coverage this close to its formula counts as equal to it."""


def equal(part: str, difference: float, limit: float, steps: int, why: str) -> Finding:
    """After some steps the weights are those of the same training done right."""
    numbers = {
        "part": part,
        "difference": difference,
        "limit": limit,
        "steps": steps,
        "why": why,
    }
    return Finding("own_equal", numbers, whether(difference <= limit))


def same_on_all(part: str, difference: float, limit: float) -> Finding:
    """All nodes end with the same weights."""
    numbers = {"part": part, "difference": difference, "limit": limit}
    return Finding("own_nodes", numbers, whether(difference <= limit))


def calls(part: str, named: str, called: Sequence[str], instead: Sequence[str]) -> Finding:
    """It calls the collective in its name, and not another one that would do the work."""
    numbers = {"part": part, "named": named, "called": tuple(called) or "–"}
    return Finding("own_calls", numbers, whether(calls_only(called, named, instead)))


def uneven(part: str, difference: float, limit: float, shares: Sequence[int]) -> Finding:
    """With uneven shares of the batch it still equals one machine."""
    numbers = {
        "part": part,
        "difference": difference,
        "limit": limit,
        "shares": " / ".join(map(str, shares)),
    }
    return Finding("own_uneven", numbers, whether(difference <= limit))


def slow_node(part: str, times: Paired, delay_ms: float) -> Finding:
    """With a slow node (first) the other one spends more time in it. Milliseconds."""
    numbers = {"part": part, "slow": times.first, "even": times.second, "delay": delay_ms}
    return Finding("own_slow", numbers, first_higher(times), times.pairs)


def faster(first: str, second: str, times: Paired, calls: Sequence[float]) -> Finding:
    """The first takes less time than the second. Milliseconds; `calls` of collectives that each of them makes."""
    numbers = {
        "first": first,
        "second": second,
        "first_ms": times.first,
        "second_ms": times.second,
        "first_calls": calls[0],
        "second_calls": calls[1],
    }
    return Finding("own_faster", numbers, first_lower(times), times.pairs)


def as_accurate(part: str, accuracies: Paired) -> Finding:
    """It ends as accurate as the same training done right (first)."""
    numbers = {
        "part": part,
        "right": accuracies.first.scaled(100),
        "own": accuracies.second.scaled(100),
        "margin": 100 * MARGIN,
    }
    return Finding("own_accuracy", numbers, no_worse(accuracies, MARGIN), accuracies.pairs)


def covers(part: str, workers: int, coverage: float, times: int, why: str) -> Finding:
    """In an epoch every sample belongs to exactly one node. `times`: how often the most frequent sample occurs."""
    numbers = {
        "part": part,
        "workers": workers,
        "coverage": 100 * coverage,
        "times": times,
        "why": why,
    }
    return Finding("own_covers", numbers, whether(coverage == 1 and times == 1))


def draws(part: str, workers: int, coverage: float, predicted: float, why: str) -> Finding:
    """Random draws with replacement see 1 − 1/e of the data set in an epoch."""
    numbers = {
        "part": part,
        "workers": workers,
        "coverage": 100 * coverage,
        "predicted": 100 * predicted,
        "near": 100 * NEAR,
        "why": why,
    }
    return Finding("own_draws", numbers, whether(abs(coverage - predicted) <= NEAR))


def new_order(part: str, workers: int, changes: bool) -> Finding:
    """set_epoch gives another order."""
    return Finding("own_epochs", {"part": part, "workers": workers, "changes": changes}, whether(changes))


def trains(part: str, steps: int, asked: int, why: str) -> Finding:
    """The program trains without an error. `asked`: steps after which it is stopped; it may end earlier."""
    numbers = {"part": part, "steps": steps, "asked": asked, "why": why}
    return Finding("own_trains", numbers, whether(steps > 0 and not why))


def split(part: str, places: str, workers: int) -> Finding:
    """The layers are on more than one worker."""
    return Finding("own_split", {"part": part, "places": places or "–"}, whether(workers > 1))


def in_shape(shapes: Sequence[Sequence[int]], why: str) -> Finding:
    """The gradients of numbers, whose shape is (), are numbers."""
    numbers = {"shapes": tuple(str(tuple(shape)) for shape in shapes), "why": why}
    return Finding("own_gradient_shape", numbers, whether(not any(shapes)))


def gradient(part: Literal["first", "second"], difference: float, limit: float, why: str) -> Finding:
    """Gradients by the tape are those of torch."""
    numbers = {"difference": difference, "limit": limit, "why": why}
    return Finding(f"own_gradient_{part}", numbers, whether(difference <= limit))


def backward_longer(times: Paired, forward: int, backward: int) -> Finding:
    """Walking back (first) takes longer than computing. Milliseconds; the numbers of tape entries of both."""
    numbers = {"backward": times.first, "forward": times.second, "entries": forward, "more": backward}
    return Finding("own_backward", numbers, first_higher(times), times.pairs)
