"""What `shoal compare` trains: variants of one recipe, or several recipes, one run after another.

A comparison is a TOML file: the recipe that all variants share, flags over it, and a table of variants. Variants in a
table [more] are trained only with --all.

    recipe = "quickstart"
    flags = "--epochs 1"

    [variants]
    single = "--strategy single"
    ring = "--strategy ddp --workers 4 --exchange by:ring"
"""

import re
import shlex
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from statistics import mode
from typing import TYPE_CHECKING, Any

from shoal.compare.comparison import INVARIANT_FOLDER, INVARIANT_STEPS, not_scheduled
from shoal.compare.earlier import earlier_result
from shoal.compare.repeated.sweep import NO_SWEEP, OF_SEVERAL, Sweep, changes_of, named
from shoal.config.custom import FileText
from shoal.config.read import (
    FileFlagText,
    FlagText,
    Tree,
    from_tree,
    merge,
    parse_toml,
    read_flags,
    read_recipe,
    shipped_recipes,
)
from shoal.config.schema import RunConfig, check_consent
from shoal.config.sections.train import OutputConfig
from shoal.errors import ConfigError, unknown
from shoal.files import copy_folder, discard
from shoal.launch.cores import threads_per_worker
from shoal.training.result import Result
from shoal.training.stop import interrupted_by

if TYPE_CHECKING:
    from shoal.training.observer import Observer

KEYS = ("recipe", "flags", "variants", "more")
STANDARD = "quickstart"
"""The shipped comparison whose variants are applied to a plain recipe."""
REFERENCE = "single"
"""The standard variant that gets the workers' number of threads."""


@dataclass(frozen=True)
class Variant:
    """One run to train; its folder has its name."""

    name: str
    config: RunConfig
    may_be_left_out: bool = False
    """Whether the comparison goes on without it if its strategy does not support the model or the settings."""
    shows_invariant_bits: bool = True
    """Whether its workers make some steps with `--reduction invariant`, too."""
    swept_from: str = ""
    """The variant whose settings a sweep has changed; empty if none has."""
    row: str = ""
    """The row of a table that its seeds share; empty where there is one seed."""


def variants_of(
    recipes: Sequence[str],
    flags: Sequence[str] | Tree,
    trust_code: bool = False,
    every: bool = False,
    sweep: Sweep = NO_SWEEP,
) -> list[Variant]:
    """The runs that a comparison, a plain recipe, or several recipes ask for; flags override the settings of all.

    `every` adds the variants of the table [more]. All settings are checked here, before anything runs. Flags of the
    launcher (`--workers 4`) apply only to runs with several workers. A standard variant whose strategy does not support
    the settings is left out, with a warning; one of the user's own is an error. With `trust_code`, the files may name
    the user's own functions. `sweep` has the values that each variant tries of the settings that it has.
    """
    changes = flags if isinstance(flags, dict) else read_flags(flags)
    if changes.get("output", {}).keys() - {"trace"}:
        raise ConfigError(
            "every run has the name of its variant", "Choose the folder of all runs with --out DIR."
        )
    if len(recipes) == 1 and any("name" in changes.get(key, {}) for key in ("strategy", "sync")):
        raise ConfigError("--strategy is what a comparison compares, so it cannot be set for all variants")
    if len(recipes) > 1:
        trees, is_standard = _recipes(recipes, trust_code), False
    else:
        fewest = 1 if sweep.values else 2
        trees, is_standard = _comparison(recipes[0], trust_code, every, fewest)
    bases: list[RunConfig] = []
    variants: list[Variant] = []
    for name, tree in trees.items():
        try:
            bases.append(_config(name, tree, changes))
        except ConfigError as error:
            # What is wrong for one process is wrong for all.
            if not (is_standard and variants):
                raise
            warnings.warn(f"{error.message}: it is left out", stacklevel=2)
            continue
        variants += _swept(Variant(name, bases[-1], is_standard and bool(variants)), tree, changes, sweep)
    sweep.check_used(bases)
    return _with_reference(variants, is_standard)


def _swept(variant: Variant, tree: Tree, changes: Tree, sweep: Sweep) -> Iterator[Variant]:
    """A variant with each combination of the values that it has; itself if it has none of their keys."""
    for combination in sweep.combinations(variant.config):
        if not combination:
            yield variant
            continue
        name = named(variant.name, combination)
        config = _config(name, tree, changes, changes_of(combination))
        yield replace(variant, name=name, config=config, swept_from=variant.name)


def by_seeds(variants: Sequence[Variant], count: int) -> list[Variant]:
    """The variants with their own seed, then all with the next one, and so on: the first keep their names.

    An earlier comparison with one seed has the first of them, and a comparison that is stopped has whole seeds.
    """
    return [
        replace(
            variant,
            name=f"{variant.name},seed={variant.config.seed + number}" if number else variant.name,
            config=replace(variant.config, seed=variant.config.seed + number),
            shows_invariant_bits=False,
            row=variant.name,
        )
        for number in range(count)
        for variant in variants
    ]


def invariant_of(config: RunConfig, folder: Path) -> RunConfig | None:
    """The settings of some steps with `--reduction invariant`, in a folder inside the run's; None if it cannot.

    A batch has eight micro-batches: work for up to eight workers.
    """
    from shoal.training.setup.build_layout import check_division  # torch: loaded when all settings are known

    train, batch = config.train, config.train.batch_size
    if not isinstance(batch, int) or train.reduction == "invariant":
        return None
    steps = min(INVARIANT_STEPS, train.steps or INVARIANT_STEPS)
    micro_batch = max(1, batch // 8)
    train = replace(train, reduction="invariant", micro_batch=micro_batch, steps=steps, test=False)
    checkpoint = replace(config.checkpoint, every=None, first_step=False)
    output = OutputConfig(str(folder), INVARIANT_FOLDER)
    try:
        # Without a number of threads each worker has one, whatever their number.
        made = replace(config, threads=None, train=train, checkpoint=checkpoint, output=output)
        check_division(made)
    except ConfigError:
        return None
    return made


def _runs_of(variant: Variant, folder: Path) -> tuple[RunConfig, list[RunConfig]]:
    """The run of a variant, in `folder/<its name>`, and those that its workers make after it."""
    output = OutputConfig(str(folder), variant.name, variant.config.output.trace)
    checkpoint = replace(variant.config.checkpoint, first_step=True)
    config = replace(variant.config, output=output, checkpoint=checkpoint)
    invariant = invariant_of(config, folder / variant.name) if variant.shows_invariant_bits else None
    return config, [invariant] if invariant else []


def taken_over(variant: Variant, folder: Path, earlier: Path) -> bool:
    """Copy the run of a variant, if it was finished with these settings in `earlier`; whether it was."""
    source = earlier / variant.name
    config, then = _runs_of(variant, folder)
    if not earlier_result(config, source) or not all(
        earlier_result(each, source / INVARIANT_FOLDER) for each in then
    ):
        return False
    copy_folder(source, folder / variant.name)
    return True


def train(variant: Variant, folder: Path, observer: "Observer") -> Result:
    """Train one variant, in `folder/<its name>`, and some steps of it in invariant mode. A signal ends the comparison.

    A single worker gets its own process, too: only there do all of torch's libraries respect its number of threads.
    """
    from shoal.launch.run import launch_run
    from shoal.launch.training import by_processes

    config, then = _runs_of(variant, folder)
    launch = by_processes if config.launch.workers == 1 else launch_run
    result = launch(config, observer, then=then)
    if result.status != "completed":
        raise interrupted_by(result.stopped_by)  # the run itself ended properly
    return result


def train_again(variant: Variant, folder: Path, observer: "Observer") -> None:
    """Train a variant once more, and keep the run that was delayed less by other work on the machine."""
    first, aside = folder / variant.name, folder / f".{variant.name}"
    first.rename(aside)
    worse = first
    try:
        train(variant, folder, observer)
        if (not_scheduled(first) or 0.0) < (not_scheduled(aside) or 0.0):
            worse = aside
    finally:
        with suppress(FileNotFoundError):  # the second run may have ended before it began
            discard(worse)
        if worse is first:
            aside.rename(first)


def _with_reference(variants: list[Variant], is_standard: bool) -> list[Variant]:
    """The variants, and `single` with the workers' number of threads if no variant is that already.

    Another number of threads rounds differently, so only this run shows what the workers should equal. The standard
    `single` becomes this run, and variants that are then the same as an earlier one are left out.
    """
    workers = [variant.config for variant in variants if variant.config.launch.workers > 1]
    singles = [variant for variant in variants if variant.config.strategy == "single"]
    if not workers or not singles:
        return variants
    threads = mode(config.threads for config in workers)
    if is_standard:
        variants = _once(
            replace(each, config=replace(each.config, threads=threads))
            if REFERENCE in (each.name, each.swept_from) and ",threads=" not in each.name
            else each
            for each in variants
        )
        singles = [variant for variant in variants if variant.config.strategy == "single"]
    # Not every library follows a process that changes its number of threads, so its bits would not be comparable.
    variants = [
        replace(each, shows_invariant_bits=each not in singles or each.config.threads == threads)
        for each in variants
    ]
    singles = [variant for variant in variants if variant.config.strategy == "single"]
    if any(variant.config.threads == threads for variant in singles):
        return variants
    name = f"single-{threads}-thread{'s' * (threads != 1)}"
    reference = Variant(name, replace(singles[0].config, threads=threads))
    at = variants.index(singles[-1]) + 1
    return [*variants[:at], reference, *variants[at:]]


def _once(variants: Iterable[Variant]) -> list[Variant]:
    """The variants without those that repeat the settings of an earlier one."""
    kept: list[Variant] = []
    for variant in variants:
        kept += [variant] * all(variant.config != each.config for each in kept)
    return kept


def _config(name: str, tree: Tree, changes: Tree, swept: Tree | None = None) -> RunConfig:
    alone = {section: change for section, change in changes.items() if section not in ("launch", "mesh")}
    try:
        config = from_tree(merge(merge(tree, alone), swept or {}))
        if config.strategy != "single":
            config = from_tree(merge(merge(tree, changes), swept or {}))
        check_consent(config)
    except ConfigError as error:
        raise ConfigError(f"variant '{name}': {error.message}", error.hint) from None
    # Written into the run folder, so that the number of cores is known when the run is read.
    return replace(config, threads=config.threads or threads_per_worker(config.launch.workers))


def _recipes(recipes: Sequence[str], trust_code: bool) -> dict[str, Tree]:
    """Recipes as they are, by name."""
    trees: dict[str, Tree] = {}
    for recipe in recipes:
        name = Path(recipe).stem
        if name in trees:
            raise ConfigError(f"two recipes are called '{name}', and so would be their run folders")
        trees[name] = read_recipe(recipe, trust_code)
        if "variants" in trees[name]:
            raise ConfigError(f"{recipe} is itself a comparison", f"Run it alone: shoal compare {recipe}")
    return trees


def _comparison(given: str, trust_code: bool, every: bool, fewest: int) -> tuple[dict[str, Tree], bool]:
    """The variants of a comparison file, shipped or the user's; of a plain recipe, the standard ones over it.

    And whether they are the standard ones. A file needs `fewest` variants.
    """
    folder = Path(str(resources.files("shoal") / "recipes" / "compare"))
    shipped = {path.stem: path for path in sorted(folder.glob("*.toml"))}

    def read_shipped(name: str) -> Tree:
        return parse_toml(shipped[name].read_text(encoding="utf-8"), shipped[name])

    if given in shipped:
        return _variants(given, read_shipped(given), trust_code, every, fewest), True
    if Path(given).suffix != ".toml" and not Path(given).exists() and given not in shipped_recipes():
        raise ConfigError(
            unknown("comparison", given, {*shipped, *shipped_recipes()}),
            "Give one of these names, the paths of .toml recipes, or run folders.",
        )
    tree = read_recipe(given, trust_code)
    is_standard = "variants" not in tree
    if is_standard:
        tree = read_shipped(STANDARD) | {"recipe": given, "flags": ""}
    return _variants(given, tree, trust_code, every, fewest), is_standard


def _variants(source: str, tree: Tree, trust_code: bool, every: bool, fewest: int) -> dict[str, Tree]:
    for key in tree:
        if key not in KEYS:
            raise ConfigError(f"{source}: {unknown('key', key, KEYS)}")
    table, recipe = tree["variants"], tree.get("recipe", "")
    if not isinstance(table, dict) or len(table) < fewest:
        raise ConfigError(f"{source}: [variants] needs at least two variants, each with its flags")
    more = tree.get("more", {})
    if not isinstance(more, dict) or table.keys() & more.keys():
        raise ConfigError(f"{source}: [more] needs variants with names of their own, each with its flags")
    if not isinstance(recipe, str):
        raise ConfigError(f"{source}: recipe must be a name or a path, not {recipe}")
    shared = read_recipe(recipe, trust_code) if recipe else {}
    if "variants" in shared:
        raise ConfigError(f"{source}: {recipe} is itself a comparison, so variants cannot share it")
    shared = merge(shared, _flags(source, tree.get("flags", "")))
    for name in (*table, *more):
        if not re.fullmatch(r"\w[\w.+-]*", name):
            raise ConfigError(f"{source}: '{name}' cannot be the name of a folder, and every variant has one")
    made = {name: over(shared, _flags(f"{source}: {name}", text)) for name, text in {**table, **more}.items()}
    return {name: made[name] for name in (made if every else table)}


def over(shared: Tree, flags: Tree) -> Tree:
    """The recipe with a variant's flags over it; `single` takes nothing from it that is for several workers."""
    if flags.get("strategy", {}).get("name") == "single":
        train = {key: value for key, value in shared.get("train", {}).items() if key != "balance"}
        shared = {key: value for key, value in shared.items() if key not in OF_SEVERAL} | {"train": train}
    return merge(shared, flags)


def _flags(source: str, text: Any) -> Tree:
    if not isinstance(text, str):
        raise ConfigError(f"{source}: flags must be one text, not {text!r}")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{source}: flags '{text}' cannot be read: {error}") from None
    return read_flags(words, FileFlagText if isinstance(text, FileText) else FlagText)
