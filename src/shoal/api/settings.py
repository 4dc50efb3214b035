"""Settings as keywords of Python: the flags of `shoal train`, with values instead of text."""

from collections.abc import Mapping
from typing import Any, cast

from shoal.config.kinds import choices, kinds_of
from shoal.config.read import Tree, from_tree, known_flags, merge, path_of, read_recipe
from shoal.config.schema import RunConfig
from shoal.errors import ConfigError
from shoal.nearest import did_you_mean

MODULE = "shoal_fit"
"""Where the settings of `shoal.fit` find its objects. The name stays the same, so that a run can be resumed."""


def config_of(recipe: str | None, settings: Mapping[str, Any], trust_code: bool = False) -> RunConfig:
    """The run that a recipe (a path, or the name of a shipped one) and keywords describe.

    >>> config_of(None, {"model": {"name": "mlp", "hidden": [8]}, "batch_size": 32}).train.batch_size
    32
    """
    tree = {} if recipe is None else read_recipe(recipe, trust_code)
    return from_tree(merge(tree, tree_of(settings)))


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
