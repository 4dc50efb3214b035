"""`shoal.train`: what `shoal train` does, called from a program, a notebook or a REPL; and what a run would do."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from shoal.api.callbacks import Callback, WithCallbacks
from shoal.api.display import display_for, headline, warnings_in_one_line
from shoal.api.keywords import Settings
from shoal.api.loggers import loggers_of
from shoal.api.notebook import in_notebook
from shoal.api.settings import NO_RECIPE, config_of, resumed_config, tree_of
from shoal.config.arguments import checks_arguments
from shoal.config.schema import RunConfig
from shoal.data.load import load
from shoal.errors import ConfigError
from shoal.events.folder import RunFolder
from shoal.launch.lost_folder import restore_settings
from shoal.launch.run import check_run, launch_run
from shoal.memory.budget import budgeted
from shoal.training.build import build_measures, build_model, torch_settings
from shoal.training.evaluation import BestEpoch
from shoal.training.progress import epoch_of, total_steps
from shoal.training.result import Result


@checks_arguments
def train(
    recipe: str | Path | RunConfig = NO_RECIPE,
    /,
    *,
    callbacks: Sequence[Callback] = (),
    resume: str | Path | None = None,
    progress: bool = True,
    trust_code: bool = False,
    **settings: Unpack[Settings],
) -> Result:
    """Train a model, and return the numbers of the run.

        shoal.train("quickstart", strategy="ddp", workers=2, epochs=1)
        shoal.train(model="mlp", optimizer={"name": "sgd", "lr": 0.1}, batch_size=32)

    Settings are the flags of `shoal train`, with _ for -; a section takes a dictionary, and a path with dots goes
    through `**{"strategy.stage": 3}`. `recipe` is the name of a recipe, the path of a TOML file, or a `RunConfig`.
    `resume` is the folder of a stopped run. Without `progress` nothing is printed. The run folder has the weights and
    everything else that `shoal train` writes.
    """
    if resume is not None:
        restore_settings(Path(resume))
    config = _config(recipe, resume, settings, trust_code)
    if config.memory.budget is not None and resume is None:
        config, why = budgeted(config)
        if progress:
            warnings.warn(why, stacklevel=3)  # over `checks_arguments`
    return observed(config, callbacks, progress, RunFolder(Path(resume)) if resume else None)


def observed(
    config: RunConfig,
    callbacks: Sequence[Callback],
    progress: bool,
    resumed: RunFolder | None = None,
    forks: bool = False,
) -> Result:
    """Make the run, show its progress and call the callbacks. With `forks`, worker processes are copies of this one."""
    for callback in callbacks:
        if not isinstance(callback, Callback):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"callback {callback!r} is of type {type(callback).__name__}",
                "Derive its class from shoal.Callback, and give an instance of it.",
            )
    callbacks = (*loggers_of(config), *callbacks)
    with warnings_in_one_line(), display_for(to_stderr=not in_notebook(), quiet=not progress) as display:
        observer = WithCallbacks(callbacks, display) if callbacks else display
        result = launch_run(config, observer, resumed, copies="always" if forks else "never")
        if progress:
            display.finished(result)
    if isinstance(observer, WithCallbacks):
        observer.ended(result)
    return result


def _config(
    recipe: str | Path | RunConfig, resume: str | Path | None, settings: Mapping[str, Any], trust_code: bool
) -> RunConfig:
    if resume is not None:
        if recipe is not NO_RECIPE:
            raise ConfigError(f"resume continues the run in {resume}; it takes no recipe ({recipe})")
        return resumed_config(Path(resume), tree_of(settings), trust_code)
    if isinstance(recipe, RunConfig):
        if settings:
            raise ConfigError(
                f"a RunConfig has all settings; {', '.join(settings)} cannot be changed beside it",
                "Use dataclasses.replace, or give settings alone.",
            )
        return recipe
    return config_of(recipe, settings, trust_code)


def dry_run(config: RunConfig) -> list[str]:
    """Check the settings, read the data, build the model and try it on a few samples; return lines about the run."""
    check_run(config)
    loggers_of(config)
    with torch_settings(config) as device:
        data = load(config.data)
        model = build_model(config, data)
        BestEpoch.of(config.stop, data, build_measures(config, model, data))
    train, samples = config.train, len(data.train)
    batch, epoch_samples = epoch_of(train, samples)
    steps = total_steps(epoch_samples, batch, train.epochs, train.steps)
    weights = sum(param.numel() for param in model.parameters() if param.requires_grad)
    fixed = sum(param.numel() for param in model.parameters()) - weights
    held_out = f", {len(data.validation):,} for validation" if data.validation is not None else ""
    shape = list(data.input_shape)
    return [
        headline(config, str(device)),
        f"  data     {samples:,} training samples of shape {shape}{held_out}, {len(data.test):,} for test",
        f"  model    {weights:,} trained parameters" + (f", {fixed:,} fixed" if fixed else ""),
        f"  steps    {steps:,}, of {batch:,} samples",
        "nothing was trained or written",
    ]
