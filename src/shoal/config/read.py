"""Read recipes and flags into a RunConfig: flags override the recipe.

    shoal train quickstart --optimizer sgd --optimizer.momentum 0.9 --epochs 2

A recipe is a TOML file whose tables are the sections of the schema. A flag is `--section.key value`, or one of the
short names in `schema.SHORT_FLAGS`. A flag that names another choice than the recipe (`--optimizer sgd` over a recipe
for adam) replaces that whole section: a learning rate tuned for one optimizer does not suit another.
"""

import re
import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import MISSING, fields
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from shoal.config.choices import by_name, choices, in_short, kinds_of
from shoal.config.custom import FileText, from_file, like, trusted
from shoal.config.flags import Flag, split
from shoal.config.kinds import ImportPath, Several, check, literals, parse
from shoal.config.mesh import LAYOUT_AXES, check_product
from shoal.config.schema import SHORT_FLAGS, RunConfig
from shoal.config.sections.sync import STRATEGIES, unknown_strategy
from shoal.config.sections.values import Custom
from shoal.config.write import check_seal
from shoal.errors import ConfigError, unknown
from shoal.files import read_text
from shoal.nearest import did_you_mean

Tree = dict[str, Any]
Schema = TypeVar("Schema")


class FlagText(str):
    """A value on the command line: text until the kind of its field is known. Errors name its `flag`."""

    flag: str

    def __new__(cls, text: str, flag: str) -> "FlagText":
        """Text with the flag it was given for."""
        made = super().__new__(cls, text)
        made.flag = flag
        return made


class FileFlagText(FlagText, FileText):
    """A value of a flag that is itself written in a file, as those of a comparison's variants are."""


def read(recipe: str | None, flags: Sequence[str], trust_code: bool = False) -> RunConfig:
    """The run that a recipe (a path, or the name of a shipped one) and flags describe.

    With `trust_code`, the recipe may name the user's own functions, too (see `custom`).

    >>> read(None, ["--model", "mlp", "--epochs=2"]).train.epochs
    2
    """
    tree = {} if recipe is None else read_recipe(recipe, trust_code)
    return from_tree(merge(tree, read_flags(flags)))


def read_recipe(recipe: str, trust_code: bool = False) -> Tree:
    """The tree of a TOML file: a path, or the bare name of a recipe shipped with shoal."""
    path = Path(recipe)
    try:
        if path.is_dir():
            raise ConfigError(
                f"'{recipe}' is a folder, not a recipe",
                f"Give the path of a .toml file. To resume a stopped run: shoal train --resume {shlex.quote(recipe)}",
            )
        if path.suffix != ".toml" and not path.exists():
            shipped = shipped_recipes()
            if recipe not in shipped:
                raise ConfigError(
                    unknown("recipe", recipe, shipped),
                    "Give the path of a .toml file, or one of these names.",
                )
            path = shipped[recipe]
        text = _recipe_text(path)
        if path.name == "config.toml":  # of a run folder
            check_seal(text, path)
        tree = parse_toml(text, path, trust_code)
        if not tree:
            raise ConfigError(
                f"the recipe {path} has no settings",
                f"`shoal train --print-config > {path}` writes a whole one.",
            )
        return tree
    except OSError as error:
        raise ConfigError(f"cannot read the recipe {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text: {error}") from None


def _recipe_text(path: Path) -> str:
    """The text of a recipe; a shell's `<(command)` is a pipe with a writer, so reading it ends."""
    if str(path).startswith(("/dev/fd/", "/proc/self/fd/")) or str(path) == "/dev/stdin":
        return path.read_text(encoding="utf-8")
    return read_text(path)


_LONG_KEY = re.compile(r"""(?:^|[\[{,])\s*(?:[\w"'-]+\s*\.\s*){64}""", re.MULTILINE)


def parse_toml(text: str, source: Path, trust_code: bool = False) -> Tree:
    """The tree of a TOML text, its texts marked as a file's unless they are trusted; errors name `source`."""
    if _LONG_KEY.search(text):  # tomllib takes minutes for a key of 100,000 parts
        raise ConfigError(f"{source} has a key of more than 64 parts")
    try:
        tree = tomllib.loads(text)
        return trusted(tree) if trust_code else from_file(tree)
    except (ValueError, RecursionError) as error:  # TOML's own error; a number of 5,000 digits; deep nesting
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ConfigError(f"{source} is not valid TOML: {why}") from None


def shipped_recipes() -> dict[str, Path]:
    """The recipes in the package, by name."""
    folder = Path(str(resources.files("shoal") / "recipes"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def read_flags(flags: Sequence[str], made: type[FlagText] = FlagText) -> Tree:
    """The tree that flags describe; every value is a FlagText, or what `made` says.

    >>> read_flags(["--lr", "0.1", "--model.hidden=32,16"])
    {'optimizer': {'lr': '0.1'}, 'model': {'hidden': '32,16'}}
    """
    found, words = split(flags, setting)
    if words:
        raise ConfigError(f"unexpected argument '{words[0]}'", "Settings are written --section.key value.")
    tree: Tree = {}
    for flag, text in found:
        section, _, key = str(path_of(flag.name)).rpartition(".")
        branch = tree.setdefault(section, {}) if section else tree
        again = key in branch and flag.is_repeatable
        branch[key] = made(f"{branch[key]};{text}" if again else text, flag.name)
    return tree


def setting(name: str) -> Flag:
    """The flag of a setting, by its short name or its path: `--epochs`, `--train.epochs`."""
    path = path_of(name)
    if path is None:
        raise ConfigError(
            f"unknown flag '{name}'{did_you_mean(name, known_flags())}",
            "`shoal train --help all` lists every setting.",
        )
    section, _, key = path.rpartition(".")
    sections = ("sync", *LAYOUT_AXES) if section == "strategy" else (section,)
    of_section = kinds_of(RunConfig)
    owners = [each for name in sections for each in choices(of_section.get(name))] if section else [RunConfig]
    kinds = [kinds_of(owner).get(key) for owner in owners]
    return Flag(name, kind=next((kind for kind in kinds if kind is bool or Several() in get_args(kind)), str))


def path_of(name: str) -> str | None:
    """The path that a flag sets, `--epochs` → `train.epochs`; None if no setting has this flag."""
    if not name.startswith("--"):
        return None
    short = name[2:].replace("_", "-")
    if short in SHORT_FLAGS:
        return SHORT_FLAGS[short]
    path = name[2:].replace("-", "_")
    section, dot, _ = path.partition(".")
    top = kinds_of(RunConfig)
    is_section = section == "strategy" or bool(choices(top.get(section)))
    return path if is_section == bool(dot) and (is_section or section in top) else None


def known_flags() -> list[str]:
    """Every flag of a setting: short names first, then paths."""
    paths = dict.fromkeys(
        f"{section}.{key}"
        for section, kind in kinds_of(RunConfig).items()
        for choice in choices(kind)
        for key in kinds_of(choice)
    )
    plain = [name.replace("_", "-") for name, kind in kinds_of(RunConfig).items() if not choices(kind)]
    return [f"--{name}" for name in (*SHORT_FLAGS, *plain, *paths)]


def expand_strategy(tree: Tree) -> Tree:
    """`strategy` abbreviates a pair of layout and sync: its name becomes the sync's, its settings the sync's settings.

    A layout that divides the model takes all workers if there is no mesh, and the settings that are its own.

    >>> expand_strategy({"strategy": {"name": "ddp", "bucket_mib": 3}, "seed": 1})
    {'seed': 1, 'sync': {'name': 'ddp', 'bucket_mib': 3}}
    """
    if "strategy" not in tree:
        return tree
    strategy, sync = (_as_table(tree.get(key, {}), key) for key in ("strategy", "sync"))
    name, layout = strategy.get("name", ""), "whole"
    if "name" in strategy:
        is_own = ":" in str(name)
        if not isinstance(name, str) or (name not in STRATEGIES and not is_own):
            raise unknown_strategy(str(name))
        layout, named = ("whole", name) if is_own else STRATEGIES[name]
        if sync.get("name", named) != named:
            raise ConfigError(
                f"strategy {name} has sync {named}, but --sync is {sync['name']}",
                "Give --strategy or --sync, not both.",
            )
        strategy = {**strategy, "name": named}
    rest = {key: value for key, value in tree.items() if key not in ("strategy", "sync")}
    for part in layout.split("+") if layout != "whole" else ():
        own = kinds_of(choices(kinds_of(RunConfig)[part])[0])
        section = {key: strategy.pop(key) for key in own.keys() & strategy.keys() - {"name"}}
        rest[part] = {**_as_table(rest.get(part, {}), part), **section}
    if layout != "whole" and "mesh" not in rest:
        if "+" in name:
            axes = layout.replace("+", "=2,")
            raise ConfigError(f"strategy {name} needs a --mesh", f"Write for example --mesh data=2,{axes}=2")
        rest["mesh"] = layout
    missing = [part for part in layout.split("+") if layout != "whole" and part not in str(rest["mesh"])]
    if missing:
        raise ConfigError(
            f"strategy {layout} divides the model along {missing[0]}, but --mesh is {rest['mesh']}",
            f"Add the axis, such as {missing[0]}=2, or give --mesh without --strategy.",
        )
    return {**rest, "sync": {**strategy, **sync}}


def _as_table(value: Any, where: str) -> Tree:
    if isinstance(value, str):
        return {"name": value}  # a recipe may write model = "lenet"
    if not isinstance(value, dict):
        raise ConfigError(
            f"{where} is a section, not the value {value!r}", f"Write [{where}] and its settings below."
        )
    return cast(Tree, value)


def merge(recipe: Tree, flags: Tree) -> Tree:
    """A recipe with flags over it: flags replace a section whose choice they change, and amend any other."""
    named = "name" in _as_table(flags.get("strategy", {}), "strategy")
    merged, flags = (_with_tables(expand_strategy(tree)) for tree in (recipe, flags))
    if named and "mesh" not in flags and any(axis in merged.get("mesh", "") for axis in LAYOUT_AXES):
        merged.pop("mesh")  # a strategy of whole models
    if "mesh" in flags and merged.get("sync", {}).get("name") == "none":
        merged.pop("sync")  # one worker's; a mesh has a default of its own
    if named or "mesh" in flags or "workers" in flags.get("launch", {}):
        # A cut fits one number of stages.
        merged["pipeline"] = {key: value for key, value in merged.get("pipeline", {}).items() if key != "cut"}
    if (named or "mesh" in flags) and "tensor" not in flags.get("mesh", ""):
        merged.pop("tensor", None)  # without that axis, a plan has no effect
    # A mesh with sizes implies the number of workers: of the two, a flag for one overrides the recipe's other.
    if "=" in flags.get("mesh", "") and "launch" in merged:
        merged["launch"] = {key: value for key, value in merged["launch"].items() if key != "workers"}
    elif (
        "workers" in flags.get("launch", {})
        and "=" in merged.get("mesh", "")
        # With several axes it is not clear which one should change: the product is refused.
        and not any(axis in merged["mesh"] for axis in LAYOUT_AXES)
    ):
        merged.pop("mesh")
    of_section = kinds_of(RunConfig)
    for key, value in flags.items():
        old = merged.get(key, {})
        is_choice = len(choices(of_section.get(key))) > 1  # the name of `output` is the run's
        if isinstance(value, dict) and (
            not is_choice or value.get("name", old.get("name")) == old.get("name")
        ):
            merged[key] = {**old, **value}
        else:
            merged[key] = value
    return merged


def _with_tables(tree: Tree) -> Tree:
    """A tree whose sections are tables and whose mesh is text, so that two trees can be merged."""
    sections = {key for key, kind in kinds_of(RunConfig).items() if choices(kind)}
    tables = {key: _as_table(value, key) if key in sections else value for key, value in tree.items()}
    check(str, tables.get("mesh", ""), "mesh")
    return tables


def from_tree(tree: Tree) -> RunConfig:
    """The RunConfig that a tree of plain values describes; an error names the path of the value, or its flag."""
    tree = expand_strategy(tree)
    config = _section(RunConfig, tree, "")
    if tree.get("mesh") and "workers" in tree.get("launch", {}):
        # Only here it is known that the user gave both, also --workers 1.
        check_product(config.axes, int(tree["launch"]["workers"]))
    return config


def _section(schema: type[Schema], tree: Tree, path: str) -> Schema:
    kinds = kinds_of(schema)
    values: Tree = {}
    for key, value in tree.items():
        where = f"{path}.{key}" if path else key
        if key not in kinds:
            raise ConfigError(
                unknown("setting", where, [f"{path}.{known}" if path else known for known in kinds])
            )
        values[key] = _value(schema, key, value, where)
    return schema(**values)


def _value(schema: type, key: str, value: Any, where: str) -> Any:
    kind = kinds_of(schema)[key]
    options = choices(kind)
    if not options:
        flag = value.flag if isinstance(value, FlagText) else where
        return check(kind, like(value, parse(kind, value)) if isinstance(value, FlagText) else value, flag)
    factory = next(field.default_factory for field in fields(schema) if field.name == key)
    default = options[0] if factory is MISSING else cast(type, factory)
    return _chosen(options, _as_table(value, where), where, default)


def _chosen(options: tuple[type, ...], tree: Tree, where: str, default: type) -> Any:
    named = by_name(options)
    if not named:
        return _section(default, tree, where)
    name = tree.get("name", next(word for word, option in named.items() if option is default))
    if isinstance(name, str):
        name, main = like(name, in_short(named, str(name)))
        tree = {**main, **tree, "name": name}
    if Custom in options and isinstance(name, str) and ":" in name:
        # Options of the user's own function have no schema: the text of a flag decides its type.
        extra = {
            key: parse(bool | int | float | str, value) if isinstance(value, FlagText) else value
            for key, value in tree.items()
            if key != "name"
        }
        return Custom(name=check(ImportPath, name, where), options=tuple(sorted(extra.items())))
    if not isinstance(name, str) or name not in named:
        hint = "For a function of your own, write package.module:function." if Custom in options else ""
        hint += " For files of your own, write their path with a slash: ./photos." * ("files" in named)
        raise ConfigError(unknown(where, str(name), _spellings(named)), hint)
    for key in tree.keys() - kinds_of(named[name]).keys():
        owners = [word for word, option in named.items() if key in kinds_of(option)]
        if owners:
            raise ConfigError(
                f"{where} '{name}' has no setting '{key}': it belongs to {', '.join(owners)}",
                f"{where} '{name}' takes: {', '.join(kinds_of(named[name]))}.",
            )
    return _section(named[name], {**tree, "name": name}, where)


def _spellings(named: dict[str, type]) -> list[str]:
    """The names of choices, with their main setting where they have one: `by:ring`, `by:tree`, …"""
    settings = {name: kinds_of(choice).get(getattr(choice, "SHORT", "")) for name, choice in named.items()}
    return [
        f"{name}:{word}" if word else name
        for name, kind in settings.items()
        for word in literals(kind) or ("",)
    ]
