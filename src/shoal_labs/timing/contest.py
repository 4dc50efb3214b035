"""Times on a noisy machine: rivals take turns, so that a slow second of the machine affects all of them."""

import gc
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch

from shoal.kit.findings import Measured, Paired, by_rounds, inside_run

Name = TypeVar("Name")

TURN_S = 0.005
"""A turn repeats a short call for about this long: the clock dominates a single call of a few microseconds."""
TURNS = 3
"""Turns of each rival in a round, of which the fastest counts: disturbances only make a machine slower."""
WARM_UP = 3
FEWEST_ROUNDS = 5
MOST = 2
"""A contest that decides nothing in its rounds may have this many times as many."""


@dataclass(frozen=True)
class Contest:
    """Seconds of one call: for every rival one number per round."""

    seconds: Mapping[str, tuple[float, ...]]

    def ms(self, rival: str) -> Measured:
        """Median and half the distance of the quartiles, in milliseconds."""
        return inside_run([1e3 * second for second in self.seconds[rival]])

    def ratio(self, rival: str, base: str) -> Measured:
        """How many times as long the rival takes, round by round: the same second of the machine for both.

        >>> Contest({"a": (1.0, 2.0, 10.0), "b": (2.0, 4.0, 25.0)}).ratio("a", "b").value
        0.5
        """
        return inside_run(self.ratios(rival, base))

    def ratios(self, rival: str, base: str) -> list[float]:
        """That ratio in every round."""
        return [a / b for a, b in zip(self.seconds[rival], self.seconds[base], strict=True)]

    def compared(self, rival: str, base: str) -> tuple[Paired, Measured]:
        """Milliseconds of both, round by round, and the rival's ratio to the base."""
        return by_rounds(self.seconds[rival], self.seconds[base]).scaled(1e3), self.ratio(rival, base)


def contest(
    rivals: Mapping[str, Callable[[], object]],
    rounds: int,
    budget_s: float,
    bases: Mapping[str, str] | None = None,
) -> Contest:
    """Phase 1, warm up and find how many calls make a turn; Phase 2, rounds in which every rival has a turn.

    The order of the rivals changes from round to round, and the fastest of a rival's turns counts. After `rounds`, more
    follow until every rival can be told from its base (the first rival unless `bases` has another) or differs little,
    at most `MOST` times as many. No round begins after the budget is spent, but a few are always made. The garbage
    collector is off while the clock runs.
    """
    names = list(rivals)
    calls = {name: max(1, round(TURN_S / _fastest_call_s(rivals[name]))) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    end_s = time.perf_counter() + budget_s
    with _no_garbage_collection():
        for number in range(MOST * rounds):
            if number >= FEWEST_ROUNDS and time.perf_counter() > end_s:
                break
            if number >= rounds and settled(seconds, bases):
                break
            first = number % len(names)
            turns = {name: list[float]() for name in names[first:] + names[:first]}
            for _ in range(TURNS):
                for name in turns:
                    turns[name].append(_turn_s(rivals[name], calls[name]))
            for name in names:
                seconds[name].append(min(turns[name]))
    return Contest({name: tuple(times) for name, times in seconds.items()})


def settled(seconds: Mapping[Name, Sequence[float]], bases: Mapping[Name, Name] | None = None) -> bool:
    """Whether more rounds would change little in how rivals compare with the first, or with their `bases`."""
    bases = bases or dict.fromkeys(list(seconds)[1:], next(iter(seconds)))
    return all(by_rounds(seconds[rival], seconds[base]).settled for rival, base in bases.items())


def until_settled(
    measure: Callable[[], Mapping[Name, Sequence[float]]], bases: Mapping[Name, Name] | None = None
) -> dict[Name, list[float]]:
    """The rounds of `measure`, which is called again, `MOST` times in all, until its rivals are settled."""
    found: dict[Name, list[float]] = {}
    for _ in range(MOST):
        for name, seconds in measure().items():
            found.setdefault(name, []).extend(seconds)
        if settled(found, bases):
            break
    return found


def contests(
    rivals: Mapping[int, Mapping[str, Callable[[], object]]], rounds: int, budget_s: float
) -> dict[int, Contest]:
    """Rivals at several places of a scale, all in one contest, so that the places can be compared with each other.

    The budget is that of one place.
    """
    everyone = {f"{place} {name}": call for place, calls in rivals.items() for name, call in calls.items()}
    bases = {
        f"{place} {name}": f"{place} {next(iter(calls))}"
        for place, calls in rivals.items()
        for name in list(calls)[1:]
    }
    seconds = contest(everyone, rounds, budget_s * len(rivals), bases).seconds
    return {
        place: Contest({name: seconds[f"{place} {name}"] for name in calls})
        for place, calls in rivals.items()
    }


@contextmanager
def one_thread() -> Generator[None]:
    """Run torch on one thread: small operations gain nothing from more, and their times scatter less."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _turn_s(call: Callable[[], object], calls: int) -> float:
    """Seconds of one call. The first is not counted: after another rival's turn, caches and memory are cold."""
    call()
    start_s = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start_s) / calls


def _fastest_call_s(call: Callable[[], object]) -> float:
    return max(1e-7, min(_turn_s(call, 1) for _ in range(WARM_UP)))


@contextmanager
def _no_garbage_collection() -> Generator[None]:
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
