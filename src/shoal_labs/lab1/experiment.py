"""All runs of the lab: for each optimizer a search of the learning rate, then the final runs with every seed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shoal.errors import DivergedError
from shoal.events.folder import RunFolder
from shoal.training.observer import Silent
from shoal.words import Phrase
from shoal_labs.lab1.plan import NAMES, Lab1Plan, Name
from shoal_labs.lab1.sweep import Sweep, sweep
from shoal_labs.runs import Runs


@dataclass(frozen=True)
class Experiment:
    """What was trained."""

    sweeps: Mapping[Name, Sweep]
    final: Mapping[Name, tuple[Path, ...]]
    """Run folders, one per seed."""


def train(plan: Lab1Plan, runs: Runs) -> Experiment:
    """Choose each learning rate, then train with it."""
    sweeps: dict[Name, Sweep] = {name: _sweep(plan, name, runs) for name in NAMES}
    final: dict[Name, tuple[Path, ...]] = dict.fromkeys(NAMES, ())
    # Seed by seed and not optimizer by optimizer: if the machine slows down for a while, it does so for all three.
    for seed in plan.seeds:
        for name in NAMES:
            rate = sweeps[name].best.rate
            if seed == plan.first_seed and plan.sweep_passes(name) == plan.passes(name):
                path = _read_test(plan, name, rate, runs)
            else:
                path = _train_final(plan, name, rate, seed, runs)
            final[name] = (*final[name], path)
    return Experiment(sweeps, final)


def sweep_notes(result: Sweep) -> list[Phrase]:
    """Remarks on a search whose best candidate was at the edge of the grid."""
    name, notes = Phrase(f"name.{result.optimizer}"), list[Phrase]()
    if result.extended:
        notes.append(Phrase("sweep.extended", {"optimizer": name, "added": result.extended}))
    if result.at_edge:
        notes.append(Phrase("sweep.at_edge", {"optimizer": name, "rate": result.best.rate}))
    return notes


def sweep_run(name: Name, rate: float) -> str:
    """The name of a candidate's run."""
    return f"sweep-{name}-{rate:g}"


def _read_test(plan: Lab1Plan, name: Name, rate: float, runs: Runs) -> Path:
    """Evaluate a run of the search on the test set, which the search itself must not read."""
    run = sweep_run(name, rate)
    config = plan.config(name, rate, plan.first_seed, plan.passes(name), test=True)
    runs.host.train(runs.placed(run, config), Silent(), RunFolder(runs.path(run)))
    return runs.path(run)


def _sweep(plan: Lab1Plan, name: Name, runs: Runs) -> Sweep:
    label = runs.words(f"name.{name}")
    runs.say("progress.sweep", optimizer=label, passes=plan.sweep_passes(name))

    def validation_loss(rate: float) -> float:
        config = plan.config(name, rate, plan.first_seed, plan.sweep_passes(name), test=False)
        try:
            loss = runs.train(sweep_run(name, rate), config, f"{label}, η = {rate:g}").validation_loss
        except DivergedError:
            loss = math.inf
        assert loss is not None, "a lab's run has a validation part"
        shown = runs.words("sweep.diverged") if math.isinf(loss) else f"{loss:.4f}"
        runs.say("progress.trial", rate=rate, loss=shown)
        return loss

    result = sweep(name, plan.rates(name), validation_loss)
    for note in sweep_notes(result):
        runs.watch.say(f"  {runs.words.shown(note)}")
    runs.say("progress.chosen", rate=result.best.rate)
    return result


def _train_final(plan: Lab1Plan, name: Name, rate: float, seed: int, runs: Runs) -> Path:
    config = plan.config(name, rate, seed, plan.passes(name), test=True)
    label = runs.words("progress.running", optimizer=runs.words(f"name.{name}"), rate=rate, seed=seed)
    result = runs.train(f"{name}-seed{seed}", config, label)
    runs.say(
        "progress.final",
        label=label,
        steps=result.steps,
        loss=result.final_loss,
        accuracy=100 * (result.test_accuracy or 0.0),
        seconds=result.seconds,
    )
    return Path(result.run)
