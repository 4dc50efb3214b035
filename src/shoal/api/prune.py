"""`shoal.prune`: prune the weights of a finished run, and fine-tune what is left."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Unpack

from shoal.api.display import display_for
from shoal.api.keywords import PruneSettings
from shoal.api.notebook import in_notebook
from shoal.api.settings import path_of_run, tree_for
from shoal.config.arguments import checks_arguments
from shoal.config.kinds import AtLeast
from shoal.config.read import Tree
from shoal.config.schema import RunConfig
from shoal.config.sections.prune import Pattern, Scope
from shoal.config.sections.values import Count, Fraction
from shoal.errors import ConfigError
from shoal.launch.run import launch_run
from shoal.training.evaluation import Metrics
from shoal.training.prune.one_shot import NetworkSize, prune_once, pruning_config
from shoal.training.result import Result
from shoal.training.saved import open_run


@dataclass(frozen=True)
class Pruned:
    """A network before pruning, after it, and after fine-tuning."""

    before: Metrics
    """On the test set, as the two below."""
    size_before: NetworkSize
    pruned: Metrics
    """Without fine-tuning."""
    size: NetworkSize
    cannot_shrink: Sequence[str]
    """Parts that structured pruning leaves as they are, and why."""
    result: Result
    """The run that fine-tuned the rest: its folder has the weights, and masks or a smaller network."""


@checks_arguments
def prune(
    run: str | Path | Result,
    *,
    sparsity: Fraction = 0.5,
    structured: bool = False,
    finetune: Count = 1,
    scope: Scope | None = None,
    layers: str = "*",
    pattern: Pattern = "",
    rewind: Annotated[int, AtLeast(0)] | None = None,
    progress: bool = True,
    trust_code: bool = False,
    **settings: Unpack[PruneSettings],
) -> Pruned:
    """Prune a finished run, and fine-tune it: a new run folder, as `shoal prune` makes it.

        shoal.prune("runs/NAME", sparsity=0.8, lr=1e-4).result.test_accuracy

    `structured` removes channels instead of single weights; `finetune` is a number of epochs; `pattern="2:4"` keeps 2
    of every 4 inputs; `rewind` sets the kept weights back to a step. Takes the settings of optimizer, schedule,
    data, launch and strategy, and `batch_size`, `micro_batch`, `clip_norm`, `device`, `threads`, `name`, `runs_dir`.
    """
    chosen = prune_settings(sparsity, structured, scope, layers, pattern, rewind)
    path = path_of_run(run)
    saved = open_run(path, trust_code=trust_code)
    config = pruning_config(saved, path, chosen, finetune, tree_for("prune", settings))
    return prune_and_tune(config, to_stderr=not in_notebook(), quiet=not progress)


def prune_settings(
    sparsity: float, structured: bool, scope: Scope | None, layers: str, pattern: str, rewind: int | None
) -> Tree:
    """The section `prune` of the run that fine-tunes."""
    if structured:
        for flag, given in (("--pattern", pattern), ("--rewind", rewind is not None)):
            if given:
                raise ConfigError(
                    f"{flag} prunes single weights, and --structured removes channels", f"Remove {flag}."
                )
        return {"name": "channels", "sparsity": sparsity, "scope": scope or "layer", "layers": layers}
    settings = {"name": "magnitude", "sparsity": sparsity, "scope": scope or "global"}
    settings |= {"layers": layers, "pattern": pattern, "begin": 0.0, "end": 0.0}
    return settings if rewind is None else settings | {"rewind": rewind}


def prune_and_tune(config: RunConfig, to_stderr: bool, quiet: bool) -> Pruned:
    """Measure what pruning alone does, then make the run that prunes and fine-tunes."""
    once = prune_once(config)
    with display_for(to_stderr=to_stderr, quiet=quiet) as display:
        result = launch_run(config, display)
    return Pruned(once.before, once.size_before, once.after, once.size_after, once.fixed, result)
