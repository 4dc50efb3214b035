"""What is compared round by round: branches that take turns in one run, and runs that take turns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from shoal_labs.lab2.plan import BATCH_SIZE, TURNS, Lab2Plan
from shoal_labs.rotation import Rotation
from shoal_labs.runs import Runs
from shoal_labs.steps import Step, read_steps
from shoal_labs.timing.contest import settled
from shoal_labs.timing.turns import made_again, over_rounds, train_in_turns


@dataclass(frozen=True)
class Contest:
    """Milliseconds of every branch, round by round: means over the workers, medians over the steps of a turn."""

    wait_ms: Mapping[str, Sequence[float]]
    move_ms: Mapping[str, Sequence[float]]
    exchange_ms: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Turn:
    """A run that took turns with others, round by round."""

    samples_per_s: Sequence[float]
    wait_ms: Sequence[float]
    """Of the worker that waits longest."""
    move_ms: Sequence[float]
    """Of the worker that moves longest."""


def read_contest(steps: Sequence[Step], rotation: Rotation) -> Contest:
    """The times of the branches of a rotation."""

    def by_round(part: str) -> Mapping[str, Sequence[float]]:
        return rotation.by_round([fmean(getattr(rank, part) for rank in step) for step in steps])

    return Contest(*(by_round(part) for part in ("wait_ms", "move_ms", "exchange_ms")))


def contest_of(plan: Lab2Plan, runs: Runs, condition: str) -> Contest:
    """The branches that take turns under a condition; their run is made again if its rounds decide nothing."""
    name = f"contest-{condition}"

    def read(paths: Sequence[Path]) -> list[Contest]:
        return [read_contest(read_steps(path, plan.workers), plan.contest(condition)) for path in paths]

    def decides(paths: Sequence[Path]) -> bool:
        return settled(joined(read(paths)).exchange_ms)

    return joined(read(made_again(runs, name, plan.runs()[name], plan.size.most, decides)))


def joined(parts: Sequence[Contest]) -> Contest:
    """The rounds of several runs, one after the other."""

    def rounds(part: str) -> Mapping[str, Sequence[float]]:
        each: list[Mapping[str, Sequence[float]]] = [getattr(contest, part) for contest in parts]
        return {branch: [ms for times in each for ms in times[branch]] for branch in each[0]}

    return Contest(*(rounds(part) for part in ("wait_ms", "move_ms", "exchange_ms")))


def timed_in_turns(plan: Lab2Plan, runs: Runs) -> dict[str, Turn]:
    """Make the runs that take turns, and read them."""
    rounds = plan.size.contest_rounds
    label, most = runs.words("progress.timed"), plan.size.most * rounds
    rounds = train_in_turns(runs, plan.turns(), rounds, label, most=most)

    def read(path: Path) -> tuple[float, float, float]:
        steps = read_steps(path, plan.workers)
        steps = steps[-(len(steps) // 4) :]  # balancing needs the steps before
        step_ms = median(max(rank.own_ms + rank.exchange_ms for rank in step) for step in steps)

        def longest(part: str) -> float:
            return max(median(getattr(step[rank], part) for step in steps) for rank in range(plan.workers))

        return 1e3 * BATCH_SIZE / step_ms, longest("wait_ms"), longest("move_ms")

    found = {name: over_rounds(runs, f"turn-{name}", rounds, read) for name in TURNS}
    return {name: Turn(*zip(*each, strict=True)) for name, each in found.items()}
