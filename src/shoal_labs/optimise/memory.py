"""Memory: one worker trains a transformer, whose activations need most memory, and every technique changes that run.

Trials are made as by `shoal memory`: in each round every setting is tried once, in a new worker (`memory/trial.py` says
why). They are kept in the folder `memory` beside the runs, so that a report in another language can take them over.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from shoal.kit.findings import Measured, inside_run
from shoal.kit.runs import write_whole
from shoal.kit.settings import (
    AdamConfig,
    DataConfig,
    ModelConfig,
    RunConfig,
    SyntheticConfig,
    TrainConfig,
    TransformerConfig,
    to_plain,
)
from shoal.kit.strategies import MemoryVariant, single_variants, try_each
from shoal_labs.optimise.pareto import pareto_front
from shoal_labs.runs import Runs
from shoal_labs.timing.contest import settled


@dataclass(frozen=True)
class MemorySize:
    """How often every technique is tried; the model and the batch."""

    rounds: int
    batch: int = 16
    model: ModelConfig = field(default_factory=lambda: TransformerConfig(layers=4, width=128))
    most: int = 0
    """Rounds, if there are more because the times scatter too much to be told apart."""
    few_settings: bool = False
    """Whether each technique is tried only in the setting that saves most."""


FULL, QUICK = MemorySize(rounds=6, most=12), MemorySize(rounds=6, most=8, few_settings=True)


@dataclass(frozen=True)
class MemoryPlan:
    """The experiment."""

    size: MemorySize
    seed: int = 0
    data: DataConfig = field(default_factory=lambda: SyntheticConfig(task="text"))

    def run(self) -> RunConfig:
        """The run as it is, without any technique."""
        return RunConfig(
            seed=self.seed,
            device="cpu",
            threads=1,
            data=self.data,
            model=self.size.model,
            optimizer=AdamConfig(),
            train=TrainConfig(batch_size=self.size.batch),
        )


def plan_for(workers: int, quick: bool, first_seed: int) -> MemoryPlan:
    """The plan of a run; memory is measured on one worker."""
    del workers
    return MemoryPlan(QUICK if quick else FULL, first_seed)


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
    peaks_mib: tuple[float, ...]
    """In every round."""
    rounds_ms: tuple[float, ...]
    """A step, in the rounds in which no setting was delayed by other programs; the first round if there is none."""

    @property
    def peak_mib(self) -> Measured:
        """Over the rounds."""
        return inside_run(self.peaks_mib)

    @property
    def step_ms(self) -> Measured:
        """Over the rounds."""
        return inside_run(self.rounds_ms)

    def ratio(self, plain: "Tried") -> Measured:
        """Time of a step over that of the plain run, formed in each round."""
        return inside_run([a / b for a, b in zip(self.rounds_ms, plain.rounds_ms, strict=True)])


@dataclass(frozen=True)
class MemoryMeasurements:
    """Everything measured."""

    plan: MemoryPlan
    tried: Mapping[str, Tried]
    """By flags; the plain run has none."""
    busy: float = 0.0
    """The part of the machine that other programs used; 0 if it was not busy."""

    @property
    def plain(self) -> Tried:
        """The run without any technique."""
        return self.tried[""]

    def of(self, technique: str) -> list[Tried]:
        """The settings of one technique, those that save least first."""
        return [each for each in self.tried.values() if each.technique == technique]

    def front(self) -> list[str]:
        """The flags of those that no other beats in both memory and time, the fastest first; none if it was busy."""
        if self.busy:
            return []
        times = {flags: each.rounds_ms for flags, each in self.tried.items()}
        return pareto_front(times, {flags: [-mib for mib in self.tried[flags].peaks_mib] for flags in times})


def measure(plan: MemoryPlan, runs: Runs) -> MemoryMeasurements:
    """Try every technique, or take over an earlier report's trials."""
    settings = single_variants(plan.run())  # of each technique, those that save least first
    if plan.size.few_settings:
        settings = {variant.techniques: variant for variant in settings}.values()
    variants = [MemoryVariant(plan.run()), *settings]
    configs = [to_plain(variant.config) for variant in variants]
    rounds = runs.reuse(NAME, lambda folder: _earlier(folder, configs, plan.size.rounds))
    if rounds is None:
        runs.say("progress.memory", techniques=len(variants) - 1, rounds=plan.size.rounds)
        rounds = _tried_in_turns(variants, plan, runs)
        folder = runs.path(NAME)
        folder.mkdir(parents=True)
        write_whole(folder / FILE, json.dumps({"settings": configs, "rounds": rounds}))
    counted = _undelayed(rounds) or rounds[:1]
    tried = {
        variant.flags: Tried(
            variant.techniques[0] if variant.techniques else PLAIN,
            variant.flags,
            variant.is_exact,
            tuple(each[place][0] / MIB for each in rounds),
            tuple(_ms(counted, place)),
        )
        for place, variant in enumerate(variants)
    }
    return MemoryMeasurements(plan, tried, runs.busy())


Rounds = Sequence[Sequence[Sequence[float]]]
"""In each round, of each variant: the fields of its `Trial`."""


def _tried_in_turns(variants: Sequence[MemoryVariant], plan: MemoryPlan, runs: Runs) -> Rounds:
    """Rounds until the techniques of the findings can be told from the plain run, or there is no point in more."""
    rounds: list[Sequence[Sequence[float]]] = []
    began, most = time.monotonic(), max(plan.size.rounds, plan.size.most)
    while len(rounds) < most:
        rounds.append(try_each([variant.config for variant in variants]))
        made, elapsed = len(rounds), time.monotonic() - began
        if made >= plan.size.rounds and (runs.busy() or _decides(variants, rounds)):
            break
        end = plan.size.rounds if made < plan.size.rounds else most
        label = runs.words("progress.memory_round", number=made, rounds=end)
        runs.say("progress.left", label=label, elapsed=elapsed, left=elapsed / made * (end - made))
    return rounds


def _decides(variants: Sequence[MemoryVariant], rounds: Rounds) -> bool:
    """Whether the plain run can be told from all blocks recomputed, and from the setting with the least memory."""
    recomputed = [place for place, each in enumerate(variants) if "checkpointing" in each.techniques][-1]
    least = min(range(len(variants)), key=lambda place: median(each[place][0] for each in rounds))
    counted = _undelayed(rounds)
    peaks = {place: [each[place][0] for each in rounds] for place in (0, recomputed)}
    times = {place: _ms(counted, place) for place in (0, recomputed, least)}
    return bool(counted) and settled(peaks) and settled(times)


def _undelayed(rounds: Rounds) -> Rounds:
    """Rounds in which the steps of every variant could be timed. Trials of older reports do not say."""
    return [each for each in rounds if not any(delayed for trial in each for delayed in trial[2:])]


def _ms(rounds: Rounds, place: int) -> list[float]:
    return [1e3 * each[place][1] for each in rounds]


def _earlier(folder: Path, settings: Sequence[Any], rounds: int) -> Rounds | None:
    try:
        found = json.loads((folder / FILE).read_text())
    except FileNotFoundError:
        return None
    same = found["settings"] == json.loads(json.dumps(settings)) and len(found["rounds"]) >= rounds
    return found["rounds"] if same else None
