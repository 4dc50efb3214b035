"""Times on a noisy machine: rivals take turns, so that a slow second of the machine affects all of them."""

import gc
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from shoal.report.findings import Measured, inside_run

TURN_S = 0.005
"""A turn repeats a short call for about this long: the clock dominates a single call of a few microseconds."""
TURNS = 3
"""Turns of each rival in a round, of which the fastest counts: disturbances only make a machine slower."""
WARM_UP = 3
FEWEST_ROUNDS = 5


@dataclass(frozen=True)
class Contest:
    """Seconds of one call: for every rival one number per round."""

    seconds: Mapping[str, tuple[float, ...]]

    def ms(self, rival: str) -> Measured:
        """Median and half the distance of the quartiles, in milliseconds."""
        return inside_run([1e3 * second for second in self.seconds[rival]])

    def ratio(self, rival: str, base: str) -> Measured:
        """How many times as long the rival takes, round by round: the same second of the machine for both.

        >>> Contest({"a": (1.0, 2.0, 10.0), "b": (2.0, 4.0, 20.0)}).ratio("a", "b")
        Measured(value=0.5, spread=0.0, basis='steps', count=3)
        """
        rounds = zip(self.seconds[rival], self.seconds[base], strict=True)
        return inside_run([mine / other for mine, other in rounds])

    def compared(self, base: str, rival: str) -> tuple[Measured, Measured, Measured]:
        """Milliseconds of both, and the rival's ratio to the base."""
        return self.ms(base), self.ms(rival), self.ratio(rival, base)

    def saved_ms(self, rival: str, base: str) -> Measured:
        """Milliseconds by which the rival is faster, round by round."""
        rounds = zip(self.seconds[rival], self.seconds[base], strict=True)
        return inside_run([1e3 * (other - mine) for mine, other in rounds])


def contest(rivals: Mapping[str, Callable[[], object]], rounds: int, budget_s: float) -> Contest:
    """Phase 1, warm up and find how many calls make a turn; Phase 2, rounds in which every rival has a turn.

    The order of the rivals changes from round to round, and the fastest of a rival's turns counts. No round begins
    after the budget is spent, but a few are always made. The garbage collector is off while the clock runs.
    """
    names = list(rivals)
    calls = {name: max(1, round(TURN_S / _fastest_call_s(rivals[name]))) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    end_s = time.perf_counter() + budget_s
    with _no_garbage_collection():
        for number in range(rounds):
            if number >= FEWEST_ROUNDS and time.perf_counter() > end_s:
                break
            first = number % len(names)
            turns = {name: list[float]() for name in names[first:] + names[:first]}
            for _ in range(TURNS):
                for name in turns:
                    turns[name].append(_turn_s(rivals[name], calls[name]))
            for name in names:
                seconds[name].append(min(turns[name]))
    return Contest({name: tuple(times) for name, times in seconds.items()})


def contests(
    rivals: Mapping[int, Mapping[str, Callable[[], object]]], rounds: int, budget_s: float
) -> dict[int, Contest]:
    """Rivals at several places of a scale, all in one contest, so that the places can be compared with each other.

    The budget is that of one place.
    """
    everyone = {f"{place} {name}": call for place, calls in rivals.items() for name, call in calls.items()}
    seconds = contest(everyone, rounds, budget_s * len(rivals)).seconds
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
