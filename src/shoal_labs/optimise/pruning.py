"""Pruning, accuracy against sparsity: the runs by name, and the numbers that are read from their folders.

::

    prune-whole-seed0          the network before pruning
    prune-weights-0-seed0      nothing is pruned, but the same fine-tuning follows: pruned networks are compared with it
    prune-weights-80-seed0     four fifths of its weights become zero, then an epoch of fine-tuning
    prune-channels-50-seed0    half of its channels are removed, then an epoch of fine-tuning
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from shoal import data
from shoal.kit.findings import Measured, inside_run, over_seeds
from shoal.kit.runs import RunFolder
from shoal.kit.settings import (
    AdamConfig,
    DataConfig,
    DigitsConfig,
    LenetConfig,
    ModelConfig,
    NoPruneConfig,
    RunConfig,
    TrainConfig,
)
from shoal.kit.strategies import rebuild
from shoal.kit.training import build_model, open_saved, prune_once, pruning_config
from shoal_labs.optimise.part import accuracy_of
from shoal_labs.plans import seeds_from
from shoal_labs.runs import ONLY_AT_THE_END, Runs
from shoal_labs.timing.contest import contest, one_thread

WHOLE = "whole"
BATCH_SIZE = 64
KINDS: dict[str, tuple[float, ...]] = {"weights": (0.5, 0.8, 0.9, 0.95), "channels": (0.25, 0.5, 0.75)}
"""The sparsities of each kind of pruning: of the weights, or of each layer's channels."""
USUAL = {"weights": 0.8, "channels": 0.5}
"""The sparsities that most findings are about."""
JUDGED = {
    *USUAL.items(),
    ("channels", KINDS["channels"][0]),
    ("channels", KINDS["channels"][-1]),
    ("weights", 0.0),
}
"""Every kind and sparsity whose accuracy a finding compares."""


@dataclass(frozen=True)
class PruningSize:
    """How much is trained."""

    epochs: int
    """Before pruning."""
    finetune: int
    seeds: int
    rounds: int
    """Of the forward passes that are timed."""
    few: int = 0
    """Seeds of the sparsities that no finding is about; 0: all."""


FULL = PruningSize(epochs=3, finetune=1, seeds=8, rounds=30)
QUICK, QUICK_SAMPLES = PruningSize(epochs=3, finetune=1, seeds=6, rounds=15, few=1), 2400


@dataclass(frozen=True)
class PruningPlan:
    """The experiment."""

    size: PruningSize
    data: DataConfig
    first_seed: int = 0
    model: ModelConfig = field(default_factory=LenetConfig)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of every run."""
        return seeds_from(self.first_seed, self.size.seeds)

    def seeds_of(self, kind: str, sparsity: float) -> tuple[int, ...]:
        """The seeds of a kind and sparsity."""
        return self.seeds if (kind, sparsity) in JUDGED else self.seeds[: self.size.few or None]

    def runs(self) -> dict[str, RunConfig]:
        """The networks before pruning."""
        return {f"prune-{WHOLE}-seed{seed}": self.whole(seed) for seed in self.seeds}

    def whole(self, seed: int) -> RunConfig:
        """The training before pruning."""
        return RunConfig(
            seed=seed,
            device="cpu",
            threads=1,
            data=self.data,
            model=self.model,
            optimizer=AdamConfig(),
            train=TrainConfig(epochs=self.size.epochs, batch_size=BATCH_SIZE),
            checkpoint=ONLY_AT_THE_END,
        )


def name_of(kind: str, sparsity: float, seed: int) -> str:
    """The name of a pruned run.

    >>> name_of("weights", 0.8, 0)
    'prune-weights-80-seed0'
    """
    return f"prune-{kind}-{100 * sparsity:.0f}-seed{seed}"


def settings_of(kind: str, sparsity: float) -> dict[str, Any]:
    """What `shoal prune` sets for this kind."""
    if kind == "channels":
        return {"name": "channels", "sparsity": sparsity, "scope": "layer"}
    return {"name": "magnitude", "sparsity": sparsity, "scope": "global", "begin": 0.0, "end": 0.0}


def plan_for(workers: int, quick: bool, first_seed: int) -> PruningPlan:
    """The plan of a run; pruning needs one worker only."""
    del workers
    data = DigitsConfig(samples=QUICK_SAMPLES if quick else None)
    return PruningPlan(QUICK if quick else FULL, data, first_seed)


BUDGET_S = 60.0
"""No further round of forward passes begins after this time."""


@dataclass(frozen=True)
class Pruned:
    """One kind of pruning at one sparsity."""

    kind: str
    sparsity: float
    at_once: tuple[float, ...]
    """Test accuracy right after pruning, of each seed."""
    accuracies: tuple[float, ...]
    """Test accuracy after fine-tuning, of each seed."""
    num_values: int
    """Weights and biases that are left."""
    num_bytes: int
    """What they take: of a tensor with pruned weights, the kept values and one bit for each weight."""
    file_bytes: int
    """The weights file on disk."""
    forward_s: tuple[float, ...]
    """A forward pass, round by round."""

    @property
    def accuracy(self) -> Measured:
        """After fine-tuning, over the seeds."""
        return over_seeds(self.accuracies)


@dataclass(frozen=True)
class PruningMeasurements:
    """Everything measured."""

    plan: PruningPlan
    whole: tuple[float, ...]
    """Test accuracy before pruning, of each seed."""
    tuned: Mapping[str, tuple[float, ...]]
    """By kind: test accuracy of the whole network after the same fine-tuning as the pruned ones."""
    num_values: int
    num_bytes: int
    file_bytes: int
    forward_s: tuple[float, ...]
    """A forward pass of the whole network, round by round."""
    pruned: Mapping[tuple[str, float], Pruned]
    """By kind and sparsity."""

    def speedup(self, pruned: Pruned) -> Measured:
        """Time of the whole network's forward pass over a pruned one's, formed in each round."""
        return inside_run([a / b for a, b in zip(self.forward_s, pruned.forward_s, strict=True)])

    def of_kind(self, kind: str) -> list[Pruned]:
        """The results of one kind of pruning, by sparsity."""
        return [self.pruned[kind, sparsity] for sparsity in KINDS[kind]]


def measure(plan: PruningPlan, runs: Runs) -> PruningMeasurements:
    """Prune and fine-tune what was trained, and read it."""
    pairs = [(kind, sparsity) for kind, sparsities in KINDS.items() for sparsity in sparsities]
    wholes = dict(zip(plan.seeds, plan.runs(), strict=True))
    configs = {
        (kind, sparsity, seed): _tuning(plan, runs.path(wholes[seed]), kind, sparsity)
        for kind, sparsity in [*((kind, 0.0) for kind in KINDS), *pairs]
        for seed in plan.seeds_of(kind, sparsity)
    }
    runs.train_all({name_of(*tuned): config for tuned, config in configs.items()})
    once = {pair: [prune_once(configs[(*pair, seed)]) for seed in plan.seeds_of(*pair)] for pair in pairs}

    def tuned(kind: str, sparsity: float) -> tuple[float, ...]:
        names = [name_of(kind, sparsity, seed) for seed in plan.seeds_of(kind, sparsity)]
        return tuple(accuracy_of(runs.path(name)) for name in names)

    folders = {pair: runs.path(name_of(*pair, plan.first_seed)) for pair in pairs}
    first = runs.path(wholes[plan.first_seed])
    seconds = _forward_seconds(plan, first, folders)
    before = once[pairs[0]][0].size_before
    return PruningMeasurements(
        plan,
        tuple(accuracy_of(runs.path(name)) for name in wholes.values()),
        {kind: tuned(kind, 0.0) for kind in KINDS},
        before.num_values,
        before.num_bytes,
        _file_bytes(first),
        seconds[WHOLE],
        {
            pair: Pruned(
                *pair,
                tuple(each.after.accuracy or 0.0 for each in once[pair]),
                tuned(*pair),
                once[pair][0].size_after.num_values,
                once[pair][0].size_after.num_bytes,
                _file_bytes(folders[pair]),
                seconds[folders[pair].name],
            )
            for pair in pairs
        },
    )


def _tuning(plan: PruningPlan, whole: Path, kind: str, sparsity: float) -> RunConfig:
    """The fine-tuning of a pruned network; at a sparsity of 0 the same without pruning."""
    settings = settings_of(kind, sparsity or USUAL[kind])
    config = pruning_config(open_saved(whole), whole, settings, plan.size.finetune, {})
    return config if sparsity else replace(config, prune=NoPruneConfig())


def _forward_seconds(
    plan: PruningPlan, whole: Path, folders: Mapping[tuple[str, float], Path]
) -> Mapping[str, tuple[float, ...]]:
    dataset = data.load(plan.data)
    config = plan.whole(plan.first_seed)

    def loaded(folder: Path, is_smaller: bool) -> nn.Module:
        model = rebuild(RunFolder(folder).path / "model.json") if is_smaller else build_model(config, dataset)
        open_saved(folder).load_into(model)
        return model

    models = {WHOLE: loaded(whole, is_smaller=False)} | {
        folder.name: loaded(folder, is_smaller=kind == "channels") for (kind, _), folder in folders.items()
    }
    inputs = dataset.batch(dataset.test, torch.arange(min(BATCH_SIZE, len(dataset.test)))).inputs
    with one_thread(), torch.inference_mode():
        passes = {name: partial(model.eval(), inputs) for name, model in models.items()}
        return contest(passes, plan.size.rounds, BUDGET_S).seconds


def _file_bytes(run: Path) -> int:
    return RunFolder(run).model.stat().st_size
