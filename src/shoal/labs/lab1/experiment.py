"""All runs of the lab: for each optimizer a sweep, then the final runs with every seed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shoal.errors import DivergedError
from shoal.events.folder import RunFolder
from shoal.labs.lab1.plan import NAMES, Name, Plan
from shoal.labs.lab1.sweep import Sweep, sweep
from shoal.labs.runs import finished
from shoal.labs.watch import Watch
from shoal.labs.words import Words
from shoal.train import worker


@dataclass(frozen=True)
class Runs:
    """Where everything was written."""

    plan: Plan
    sweeps: Mapping[Name, Sweep]
    final: Mapping[Name, tuple[Path, ...]]
    """Run folders, one per seed."""


def run_all(plan: Plan, runs: Path, words: Words, watch: Watch, earlier: Path | None = None) -> Runs:
    """Choose each learning rate, then train with it. A Ctrl-C ends it with a KeyboardInterrupt; the runs stay.

    What an `earlier` folder of runs holds, finished and with the same settings, is copied and not trained again.
    """
    sweeps: dict[Name, Sweep] = {name: _sweep(plan, name, runs, words, watch, earlier) for name in NAMES}
    final: dict[Name, tuple[Path, ...]] = dict.fromkeys(NAMES, ())
    # Seed by seed and not optimizer by optimizer: should the machine slow down for a while, it does so for all three.
    for seed in plan.all_seeds:
        for name in NAMES:
            if seed not in plan.seeds(name):
                continue
            rate = sweeps[name].best.rate
            if seed == plan.first_seed and plan.sweep_passes(name) == plan.passes(name):
                path = _read_test(plan, name, rate, runs)
            else:
                path = _train_final(plan, name, rate, seed, runs, words, watch, earlier)
            final[name] = (*final[name], path)
    return Runs(plan, sweeps, final)


def sweep_run(name: Name, rate: float) -> str:
    """The name of a candidate's run folder."""
    return f"sweep-{name}-{rate:g}"


def _read_test(plan: Plan, name: Name, rate: float, runs: Path) -> Path:
    """The search has made this run already: it is finished by what the search may not do, reading the test set."""
    run = sweep_run(name, rate)
    config = plan.config(name, rate, plan.first_seed, plan.passes(name), str(runs), run, test=True)
    worker.run(config, resumed=RunFolder(runs / run))
    return runs / run


def _sweep(plan: Plan, name: Name, runs: Path, words: Words, watch: Watch, earlier: Path | None) -> Sweep:
    label = words(f"name.{name}")
    watch.say(words("progress.sweep", optimizer=label, passes=plan.sweep_passes(name)))

    def validation_loss(rate: float) -> float:
        passes, run = plan.sweep_passes(name), sweep_run(name, rate)
        config = plan.config(name, rate, plan.first_seed, passes, str(runs), run, test=False)
        try:
            loss = finished(config, watch.running(f"{label}, η = {rate:g}"), earlier).validation_loss
        except DivergedError:
            loss = math.inf
        assert loss is not None, "a lab's run has a validation part"
        told = words("sweep.diverged") if math.isinf(loss) else f"{loss:.4f}"
        watch.say(words("progress.trial", rate=rate, loss=told))
        return loss

    result = sweep(name, plan.rates(name), validation_loss)
    if result.extended:
        watch.say("  " + words("sweep.extended", optimizer=label, added=result.extended))
    if result.at_edge:
        watch.say("  " + words("sweep.at_edge", optimizer=label, rate=result.best.rate))
    watch.say(words("progress.chosen", rate=result.best.rate))
    return result


def _train_final(
    plan: Plan,
    name: Name,
    rate: float,
    seed: int,
    runs: Path,
    words: Words,
    watch: Watch,
    earlier: Path | None,
) -> Path:
    label = words(f"name.{name}")
    config = plan.config(name, rate, seed, plan.passes(name), str(runs), f"{name}-seed{seed}", test=True)
    result = finished(
        config, watch.running(words("progress.running", optimizer=label, rate=rate, seed=seed)), earlier
    )
    watch.say(
        words(
            "progress.final",
            optimizer=label,
            rate=rate,
            seed=seed,
            steps=result.steps,
            loss=result.final_loss,
            accuracy=100 * (result.test_accuracy or 0.0),
            seconds=result.seconds,
        )
    )
    return Path(result.run)
