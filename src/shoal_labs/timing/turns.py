"""Short runs in rounds, made by the same workers: rivals are timed in the same state of the machine.

    round 0   a   b   c
    round 1   c   b   a        the order alternates, so that a machine that becomes slower favours none of them
    …

Starting processes takes longer than such a run, so all of them are made by the processes of the first. A run of one
worker is made by rank 0 while the others sleep.
"""

import math
import time
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import TypeVar

from shoal.kit.base import WorkerError
from shoal.kit.runs import LINE_EVERY_S, RunFolder, earlier_result, read_events, steps_of
from shoal.kit.settings import RunConfig
from shoal.kit.training import interrupted_by, launch_run
from shoal_labs.runs import Runs
from shoal_labs.timing.contest import settled

Number = TypeVar("Number")

RESULT = "result.json"
"""The file that a finished run has in its folder."""


def round_name(name: str, number: int) -> str:
    """The name of a run in one round.

    >>> round_name("slow", 3)
    'slow-round3'
    """
    return f"{name}-round{number}"


def train_in_turns(
    runs: Runs,
    configs: Mapping[str, RunConfig],
    rounds: int,
    label: str,
    same_workers: bool = True,
    most: int = 0,
    bases: Mapping[str, str] | None = None,
    budget_s: float = math.inf,
) -> int:
    """Make rounds of these runs, or copy all of them from an earlier report; the first has several workers.

    As many more follow, up to `most` in all, if the step of some run cannot be told from its base's (`bases`; without
    them: from the first run's), unless the budget would not suffice for them; on a busy machine none: its times decide
    nothing. Returns the number of rounds. Without `same_workers`, each run starts processes of its own: torch's RPC can
    be started once in a process.
    """
    made, began = 0, time.monotonic()
    while not made or (
        made < most
        and not runs.busy()
        and (time.monotonic() - began) * (1 + rounds / made) <= budget_s
        and not settled(_step_times(runs, configs, made), bases)
    ):
        end = min(made + rounds, max(rounds, most))
        _make_rounds(runs, configs, range(made, end), label, same_workers)
        made = end
    return made


def _step_times(runs: Runs, configs: Mapping[str, RunConfig], rounds: int) -> dict[str, list[float]]:
    return {name: over_rounds(runs, name, rounds, _step_s) for name in configs}


def _step_s(run: Path) -> float:
    """The median step of rank 0."""
    return median(step.seconds for step in steps_of(read_events(RunFolder(run).events())))


def _make_rounds(
    runs: Runs, configs: Mapping[str, RunConfig], rounds: range, label: str, same_workers: bool
) -> None:
    names = list(configs)
    placed = {
        (run := round_name(name, number)): runs.placed(run, configs[name])
        for number in rounds
        for name in (
            reversed(names) if (number - rounds.start) % 2 else names
        )  # a run of several workers first
    }
    earlier = runs.earlier
    if earlier is not None and all(earlier_result(each, earlier / run) for run, each in placed.items()):
        for run in placed:
            runs.reuse(run, lambda _: True)
        return
    runs.say("progress.turns", label=label, rounds=len(rounds), rivals=len(names))
    each = list(placed.values())
    with _time_left(runs, label, [runs.path(run) for run in placed]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"link \d+-\d+: ")  # measured in every round; the events have it
        for first, *rest in [each] if same_workers else [[one] for one in each]:
            result = launch_run(first, runs.watch.running(label), then=rest)
            if result.status != "completed":
                raise interrupted_by(result.stopped_by)  # the workers ended their run in good order
    runs.trained.extend(placed)
    for run in placed:
        if not (runs.path(run) / RESULT).exists():
            raise WorkerError(
                f"the run {run} did not finish", f"Its events are in {runs.path(run)}.", exit_code=1
            )


@contextmanager
def _time_left(runs: Runs, label: str, made: Sequence[Path]) -> Generator[None]:
    """Show now and then how long the rest of these runs will take: their workers report the first of them alone."""
    began, over = time.monotonic(), Event()

    def show() -> None:
        while not over.wait(LINE_EVERY_S):
            done = sum((run / RESULT).exists() for run in made)
            if done:
                runs.watch.say(runs.with_time_left(label, began, done, len(made) - done))

    shown = Thread(target=show, daemon=True)
    shown.start()
    try:
        yield
    finally:
        over.set()
        shown.join()


def made_again(
    runs: Runs, name: str, config: RunConfig, most: int, decides: Callable[[list[Path]], bool]
) -> list[Path]:
    """The folders of a run in which ways take turns: it is made again, up to `most` times in all, until it decides."""
    paths = [runs.path(name)]
    while len(paths) < most and not runs.busy() and not decides(paths):
        again = f"{name}-again{len(paths)}"
        runs.train(again, config, again)
        paths.append(runs.path(again))
    return paths


def over_rounds(runs: Runs, name: str, rounds: int, read: Callable[[Path], Number]) -> list[Number]:
    """What `read` finds in the run of every round."""
    return [read(runs.path(round_name(name, number))) for number in range(rounds)]
