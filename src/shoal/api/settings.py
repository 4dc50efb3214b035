"""Settings of a run that a program or a command starts: keywords of Python, and the changes of a resumed run.

Keywords are the flags of `shoal train`, with values instead of text. A resumed run has the settings of its folder, and
may change those that do not change what is computed. A checkpoint holds the state of one machine, whatever strategy
saved it, so a run may continue under another strategy, with another number of workers, in less memory, over slow links
or with faults (`config/schema.py`). Settings that decide *what* is computed stay as they are: data, partition,
model, loss, optimizer, schedule, batch size, seed, engine, precision. Their names may be repeated, which is how a user
agrees to run a function of their own. How often a step updates the weights stays, too (`_updates_of`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from shoal.api import TAKES
from shoal.config.choices import choices, kinds_of
from shoal.config.read import Tree, from_tree, known_flags, merge, path_of, read_recipe
from shoal.config.schema import DECIDES_BITS, MAY_DIFFER, RunConfig, may_differ
from shoal.errors import ConfigError
from shoal.events.folder import RunFolder
from shoal.nearest import did_you_mean
from shoal.training.result import Result

MODULE = "shoal_fit"
"""Where the settings of `shoal.fit` find its objects. The name stays the same, so that a run can be resumed."""


NO_RECIPE = Path()
"""Stands for a recipe that was left out: None may be a mistake of the program."""


def config_of(recipe: str | Path | None, settings: Mapping[str, Any], trust_code: bool = False) -> RunConfig:
    """The run that a recipe (a path, or the name of a shipped one; none: `NO_RECIPE`) and keywords describe.

    >>> config_of(None, {"model": {"name": "mlp", "hidden": [8]}, "batch_size": 32}).train.batch_size
    32
    """
    tree = {} if recipe is None or recipe is NO_RECIPE else read_recipe(str(recipe), trust_code)
    return from_tree(merge(tree, tree_of(settings)))


def path_of_run(run: str | Path | Result) -> Path:
    """The folder of a run, or the file, that a program names."""
    return Path(run.run if isinstance(run, Result) else run)


def path_of_function(kind: str, function: Any) -> str:
    """The `package.module:function` of an object, for workers that import it.

    >>> import math
    >>> path_of_function("loss", math.hypot)
    'math:hypot'
    """
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    where = (
        "in the program itself, which workers do not import"
        if module == "__main__"
        else "inside a function"
        if "<" in name
        else ""
    )
    if where or not module or not name:
        raise ConfigError(
            f"{kind} {name or repr(function)} is defined {where or 'where no module names it'}",
            "Put it into a module, or use shoal.fit, whose workers are copies of the program.",
        )
    return f"{module}:{name}"


def tree_of(settings: Mapping[str, Any]) -> Tree:
    """The tree that keywords describe: a short name, a path with dots, or a section with a dictionary.

    >>> tree_of({"lr": 0.1, "strategy": "zero", "strategy.stage": 3})
    {'optimizer': {'lr': 0.1}, 'strategy': {'name': 'zero', 'stage': 3}}
    >>> tree_of({"optimizer": {"name": "sgd", "momentum": 0.9}})
    {'optimizer': {'name': 'sgd', 'momentum': 0.9}}
    """
    tree: Tree = {}
    for name, value in settings.items():
        if callable(value):
            value = path_of_function(name, value)
        if isinstance(value, Mapping) and (name == "strategy" or choices(kinds_of(RunConfig).get(name))):
            tree.setdefault(name, {}).update(cast(Mapping[str, Any], value))
            continue
        path = path_of(f"--{name}")
        if path is None:
            known = [flag[2:].replace("-", "_") for flag in known_flags()]
            raise ConfigError(
                f"unknown setting '{name}'{did_you_mean(name, known)}",
                "Settings are the flags of `shoal train`, with _ for -, or sections: optimizer={'name': 'sgd'}.",
            )
        section, _, key = path.rpartition(".")
        (tree.setdefault(section, {}) if section else tree)[key] = value
    return tree


def tree_for(function: str, settings: Mapping[str, Any]) -> Tree:
    """The tree of keywords, for a function that takes some settings only (`TAKES`).

    >>> tree_for("evaluate", {"metrics": ["top5"]})
    {'train': {'metrics': ['top5']}}
    """
    tree, taken = tree_of(settings), TAKES[function]
    for section, value in tree.items():
        paths = [f"{section}.{key}" for key in value] if isinstance(value, dict) else [section]
        for path in paths if section not in taken else ():
            if path not in taken:
                raise ConfigError(
                    f"shoal.{function} has no setting {path}",
                    f"Of the settings of shoal.train, it takes those of {', '.join(sorted(taken))}.",
                )
    return tree


RESUMED = [path for path, places in MAY_DIFFER.items() if "resumed" in places]


def resumed_config(folder: Path, changes: Tree, trust_code: bool) -> RunConfig:
    """The settings of the stopped run, with the changes that a resumed run may make."""
    config = RunFolder(folder).config
    if not config.exists():
        if not folder.exists():
            raise ConfigError(
                f"no run folder {folder}", "Check the path after --resume: runs are in runs/NAME."
            )
        raise ConfigError(f"{folder} is not a run folder: it has no {config.name}")
    saved = read_recipe(str(config), trust_code)
    tables = {section: table for section, table in saved.items() if isinstance(table, dict)}
    is_invariant = tables.get("train", {}).get("reduction") == "invariant"
    for section, value in changes.items():
        for path in [f"{section}.{key}" for key in value] if isinstance(value, dict) else [section]:
            repeated = path == f"{section}.name" and value["name"] == tables.get(section, {}).get("name")
            # A section may be given by its name alone.
            if not may_differ(path, "resumed") and f"{section}.*" not in RESUMED and not repeated:
                raise ConfigError(
                    f"--resume cannot change {path}", f"It can change: {', '.join(sorted(RESUMED))}."
                )
            if is_invariant and path in DECIDES_BITS:
                raise ConfigError(
                    f"--resume cannot change {path} of a run with --reduction invariant: its bits depend on it",
                    f"Resume it without --{path.rpartition('.')[2].replace('_', '-')}.",
                )
    config = from_tree(merge(saved, changes))
    before, now = _updates_of(from_tree(saved)), _updates_of(config)
    if before != now:  # the pipeline schedule `async` would begin or end, or its delays would change
        raise ConfigError(
            f"--resume cannot change what a step computes: the run in {folder} makes {before}, not {now}",
            "Resume it with its own --pipeline settings, or start a new run.",
        )
    return config


def _updates_of(config: RunConfig) -> str:
    """Which updates a step of a run makes."""
    stages, microbatches = config.axes.get("pipeline", 1), config.pipeline.microbatches
    if stages == 1 or microbatches == 1 or not config.pipeline.updates_inside:
        return "one update per step"
    # The number of stages also decides which weights a micro-batch sees.
    return f"an update after each of {microbatches} micro-batches in {stages} stages (async)"
