"""What `shoal compare` trains: variants of one recipe, or several recipes, one run after another.

A comparison is a TOML file: the recipe that all variants share, flags over it, and a table of variants.

    recipe = "quickstart"
    flags = "--epochs 1"

    [variants]
    single = ""
    ring = "--strategy ddp --workers 4 --exchange by:ring"
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from shoal.config.read import Tree, from_tree, merge, parse_toml, read_flags, read_recipe, shipped_recipes
from shoal.config.schema import OutputConfig, RunConfig
from shoal.errors import ConfigError, unknown
from shoal.launch.cores import threads_per_worker
from shoal.launch.run import launch_run
from shoal.launch.training import by_processes
from shoal.train.observer import Observer
from shoal.train.result import Result

KEYS = ("recipe", "flags", "variants")
STANDARD = "quickstart"
"""The shipped comparison, whose variants a plain recipe is tried with."""


@dataclass(frozen=True)
class Variant:
    """One run to be made: its name, which is its folder's, too."""

    name: str
    config: RunConfig


def variants_of(recipes: Sequence[str], flags: Sequence[str]) -> list[Variant]:
    """The runs that a comparison, a plain recipe, or several recipes ask for; flags go over all of them.

    All settings are checked here, before anything runs. A flag of the launcher (`--workers 4`) goes over those with
    several workers only.
    """
    changes = read_flags(flags)
    if changes.get("output", {}).keys() - {"trace"}:
        raise ConfigError("every run gets the name of its variant", "--out DIR says where all of them go.")
    if len(recipes) == 1 and "name" in changes.get("strategy", {}):
        raise ConfigError("--strategy is what a comparison compares, and goes over none of its variants")
    trees = _comparison(recipes[0]) if len(recipes) == 1 else _recipes(recipes)
    return [Variant(name, _config(name, tree, changes)) for name, tree in trees.items()]


def train(variant: Variant, folder: Path, observer: Observer) -> Result:
    """Train one variant, in `folder/<its name>`. A Ctrl-C in it ends the comparison, too.

    One worker, too, gets a process of its own: only there do all of torch's libraries keep to its number of threads.
    """
    output = OutputConfig(str(folder), variant.name, variant.config.output.trace)
    config = replace(variant.config, output=output)
    alone = config.launch.workers == 1
    result = by_processes(config, observer) if alone else launch_run(config, observer)
    if result.status != "completed":
        raise KeyboardInterrupt  # the worker ended its run in good order
    return result


def _config(name: str, tree: Tree, changes: Tree) -> RunConfig:
    alone = {section: change for section, change in changes.items() if section != "launch"}
    try:
        config = from_tree(merge(tree, alone))
        if config.strategy != "single":
            config = from_tree(merge(tree, changes))
    except ConfigError as error:
        raise ConfigError(f"variant '{name}': {error.message}", error.hint) from None
    # Written down, so that whoever reads the run later knows how many cores it had.
    return replace(config, threads=config.threads or threads_per_worker(config.launch.workers))


def _recipes(recipes: Sequence[str]) -> dict[str, Tree]:
    """Recipes as they are, by name."""
    trees: dict[str, Tree] = {}
    for recipe in recipes:
        name = Path(recipe).stem
        if name in trees:
            raise ConfigError(f"two recipes are called '{name}', and so would be their run folders")
        trees[name] = read_recipe(recipe)
        if "variants" in trees[name]:
            raise ConfigError(f"{recipe} is a comparison of its own", f"Run it alone: shoal compare {recipe}")
    return trees


def _comparison(given: str) -> dict[str, Tree]:
    """The variants of a comparison file, shipped or the user's; of a plain recipe, the standard ones over it."""
    shipped = _shipped()
    if given in shipped:
        return _variants(given, _read(shipped[given]))
    if Path(given).suffix != ".toml" and not Path(given).exists() and given not in shipped_recipes():
        raise ConfigError(
            unknown("comparison", given, {*shipped, *shipped_recipes()}),
            "Give one of these names, the paths of .toml recipes, or run folders.",
        )
    tree = read_recipe(given)
    if "variants" in tree:
        return _variants(given, tree)
    return _variants(given, {"recipe": given, "variants": _read(shipped[STANDARD])["variants"]})


def _variants(source: str, tree: Tree) -> dict[str, Tree]:
    for key in tree:
        if key not in KEYS:
            raise ConfigError(f"{source}: {unknown('key', key, KEYS)}")
    table = tree["variants"]
    if not isinstance(table, dict) or len(table) < 2:
        raise ConfigError(f"{source}: [variants] needs two variants or more, each with its flags")
    recipe = _recipe(source, tree["recipe"]) if "recipe" in tree else {}
    shared = merge(recipe, _flags(source, tree.get("flags", "")))
    return {
        _name(source, name): merge(shared, _flags(f"{source}: {name}", text)) for name, text in table.items()
    }


def _recipe(source: str, given: Any) -> Tree:
    if not isinstance(given, str):
        raise ConfigError(f"{source}: recipe is the name or the path of one, not {given}")
    tree = read_recipe(given)
    if "variants" in tree:
        raise ConfigError(
            f"{source}: {given} is a comparison itself, and no recipe that variants could share"
        )
    return tree


def _name(source: str, name: str) -> str:
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise ConfigError(f"{source}: '{name}' cannot be the name of a folder, and every variant gets one")
    return name


def _flags(source: str, text: Any) -> Tree:
    if not isinstance(text, str):
        raise ConfigError(f"{source}: flags are written as one text, not {text!r}")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{source}: flags '{text}' cannot be read: {error}") from None
    return read_flags(words)


def _shipped() -> dict[str, Path]:
    folder = Path(str(resources.files("shoal") / "recipes" / "compare"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def _read(path: Path) -> Tree:
    return parse_toml(path.read_text(encoding="utf-8"), path)
