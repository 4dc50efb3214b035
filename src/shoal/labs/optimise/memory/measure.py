"""Trials of every technique, as `shoal memory` makes them: the peak of memory, and the time of a step.

In each round every setting is tried once, in a new worker (`memory/trial.py` says why). The trials are kept in the
folder `memory` beside the runs, so that a report in another language can take them over.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.config.plain import to_plain
from shoal.events.folder import write_whole
from shoal.labs.optimise.memory.plan import Plan
from shoal.labs.optimise.pareto import pareto_front
from shoal.labs.runs import Runs
from shoal.memory.techniques import MemoryVariant, single_variants
from shoal.memory.trial import try_each
from shoal.report.findings import Measured, inside_run

NAME = "memory"
FILE = "trials.json"
PLAIN = "plain"
MIB = 2**20


@dataclass(frozen=True)
class Tried:
    """One technique in one setting."""

    technique: str
    flags: str
    is_exact: bool
    """Whether training computes the same."""
    peak_mib: Measured
    step_ms: Measured
    ratio: Measured
    """Time of a step over that of the plain run, formed in each round."""


@dataclass(frozen=True)
class Measurements:
    """Everything measured."""

    plan: Plan
    tried: Mapping[str, Tried]
    """By flags; the plain run has none."""

    @property
    def plain(self) -> Tried:
        """The run without any technique."""
        return self.tried[""]

    def of(self, technique: str) -> list[Tried]:
        """The settings of one technique, those that save least first."""
        return [each for each in self.tried.values() if each.technique == technique]

    def front(self) -> list[str]:
        """The flags of those that no other beats in both memory and time, the fastest first."""
        points = {flags: (each.step_ms.value, -each.peak_mib.value) for flags, each in self.tried.items()}
        return pareto_front(points)


def measure(plan: Plan, runs: Runs) -> Measurements:
    """Try every technique, or take over an earlier report's trials."""
    variants = [MemoryVariant(plan.run()), *single_variants(plan.run())]
    settings = [to_plain(variant.config) for variant in variants]
    rounds = runs.reuse(NAME, lambda folder: _earlier(folder, settings, plan.size.rounds))
    if rounds is None:
        runs.say("progress.memory", techniques=len(variants) - 1, rounds=plan.size.rounds)
        rounds = [try_each([variant.config for variant in variants]) for _ in range(plan.size.rounds)]
        folder = runs.path(NAME)
        folder.mkdir(parents=True)
        write_whole(folder / FILE, json.dumps({"settings": settings, "rounds": rounds}))
    tried = {
        variant.flags: _tried(variant, [each[place] for each in rounds], [each[0] for each in rounds])
        for place, variant in enumerate(variants)
    }
    return Measurements(plan, tried)


Rounds = Sequence[Sequence[Sequence[float]]]
"""In each round, of each variant: the fields of its `Trial`."""


def _earlier(folder: Path, settings: Sequence[Any], rounds: int) -> Rounds | None:
    try:
        found = json.loads((folder / FILE).read_text())
    except FileNotFoundError:
        return None
    same = found["settings"] == json.loads(json.dumps(settings)) and len(found["rounds"]) == rounds
    return found["rounds"] if same else None


def _tried(
    variant: MemoryVariant, trials: Sequence[Sequence[float]], plain: Sequence[Sequence[float]]
) -> Tried:
    return Tried(
        variant.techniques[0] if variant.techniques else PLAIN,
        variant.flags,
        variant.is_exact,
        inside_run([peak / MIB for peak, *_ in trials]),
        inside_run([1e3 * seconds for _, seconds, *_ in trials]),
        inside_run([mine[1] / its[1] for mine, its in zip(trials, plain, strict=True)]),
    )
