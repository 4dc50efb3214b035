"""Times and bubbles of runs that take turns, round by round."""

from collections.abc import Mapping
from dataclasses import dataclass

from shoal.compare.comparison import compare
from shoal_labs.lab4.actions import read_pipelined
from shoal_labs.lab4.plan import BATCH_SIZE, Lab4Plan
from shoal_labs.runs import Runs
from shoal_labs.timing.turns import round_name, train_in_turns


@dataclass(frozen=True)
class Rounds:
    """One run, once in every round."""

    step_ms: tuple[float, ...]
    """Of the median step."""
    bubble: tuple[float, ...]
    """The fraction of all stages' time in which they do not compute; empty for a run without a pipeline."""


def timed_in_turns(plan: Lab4Plan, runs: Runs, schedules: Mapping[str, tuple[str, int]]) -> dict[str, Rounds]:
    """Make every contest of the plan, and read it. `schedules`: schedule and micro-batches of the pipelines."""
    found: dict[str, Rounds] = {}
    for contest, configs in plan.contests().items():
        rounds, label = plan.rounds_of(contest), runs.words(f"progress.{contest}")
        most, together = plan.size.most * rounds, contest != "rpc"
        rounds = train_in_turns(runs, configs, rounds, label, same_workers=together, most=most)
        for name in configs:
            paths = [runs.path(round_name(name, number)) for number in range(rounds)]
            times = tuple(1e3 * BATCH_SIZE * each.sample_s.value for each in compare(paths).entries)
            bubbles: tuple[float, ...] = ()
            if name in schedules:
                schedule, count = schedules[name]
                stages = plan.stages_of(name)
                bubbles = tuple(read_pipelined(path, schedule, stages, count).bubble.value for path in paths)
            found[name] = Rounds(times, bubbles)
    return found
