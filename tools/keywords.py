"""Print `src/shoal/api/keywords.py`: the keywords of `shoal.train` and its relatives, for editors and type checkers.

    python tools/keywords.py > src/shoal/api/keywords.py

Every line follows from the settings (`config/schema.py`); `tests/api/test_keywords.py` compares the two.
"""

import types
import typing
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, get_args, get_origin

from shoal.api import TAKES
from shoal.config.choices import choices, kinds_of
from shoal.config.kinds import Several, literals
from shoal.config.schema import SHORT_FLAGS, RunConfig
from shoal.config.sections.sync import STRATEGIES
from shoal.config.sections.values import AmongOrOwn, Custom, ImportPath

HEAD = '''"""Keywords of `shoal.train` and its relatives, for editors. Made by tools/keywords.py from the settings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

# fmt: off
# ruff: noqa: D101, E501

'''
OF_FIT = ("model", "data", "loss", "metrics", "strategy")
"""Keywords that `shoal.fit` declares itself."""
OWN = ("str", "Callable[..., Any]")
"""A function of the user's own, or its path."""
PLAIN = {
    int: "int",
    float: "float",
    bool: "bool",
    str: "str",
    types.NoneType: "None",
    typing.SupportsIndex: "int",
}


def written(kind: Any) -> list[str]:
    """The parts of the union that a kind is, as Python writes them: `Literal['a', 'b']` and `None`."""
    if kind == ImportPath:
        return [*OWN]
    if words := literals(kind):
        more = OWN if any(isinstance(limit, AmongOrOwn) for limit in get_args(kind)[1:]) else []
        return [f"Literal[{', '.join(map(repr, words))}]", *more]
    if get_origin(kind) is Annotated:
        base = written(get_args(kind)[0])
        return [*base, "str"] if Several() in get_args(kind) else base
    if get_origin(kind) in (types.UnionType, typing.Union):
        return [part for each in get_args(kind) for part in written(each)]
    if get_origin(kind) is tuple:
        return [f"Sequence[{' | '.join(written(get_args(kind)[0]))}]"]
    return [PLAIN.get(kind, "str")]  # a class of ours is read from text


def union(kinds: Iterable[Any]) -> str:
    """A setting that several choices have, each with its own kind; words of all in one Literal."""
    parts = [part for kind in kinds for part in written(kind)]
    words = [word for part in parts if part.startswith("Literal") for word in part[8:-1].split(", ")]
    literal = [f"Literal[{', '.join(dict.fromkeys(words))}]"] if words else []
    others = [part for part in dict.fromkeys(parts) if not part.startswith("Literal")]
    return " | ".join(
        [*literal, *(part for part in others if part != "None"), *(["None"] if "None" in others else [])]
    )


def owners(section: str) -> list[type]:
    """The dataclasses with the settings of a section."""
    sections = ("sync", "pipeline", "tensor") if section == "strategy" else (section,)
    kinds = kinds_of(RunConfig)
    return [each for name in sections for each in choices(kinds[name]) if each is not Custom]


def settings_of(section: str) -> dict[str, str]:
    """The settings of a section with their types."""
    names = dict.fromkeys(key for owner in owners(section) for key in kinds_of(owner))
    found = {
        name: union(kinds_of(owner)[name] for owner in owners(section) if name in kinds_of(owner))
        for name in names
    }
    if section == "strategy":
        found["name"] = f"Literal[{', '.join(map(repr, STRATEGIES))}] | str"
    return found


def keywords() -> Iterator[tuple[str, str, str]]:
    """Every keyword: the path that it sets, its name and its type."""
    for name, kind in kinds_of(RunConfig).items():
        yield name, name, section(name) if choices(kind) else union([kind])
    yield "strategy", "strategy", section("strategy")
    for flag, path in SHORT_FLAGS.items():
        home, _, key = path.partition(".")
        if flag != home:
            yield path, flag.replace("-", "_"), settings_of(home)[key]


def section(name: str) -> str:
    """The type of a whole section: a name, a function of the user's own, or a table, whose keys may be a function's."""
    kind = kinds_of(RunConfig).get("sync" if name == "strategy" else name)
    own = f" | {' | '.join(OWN)}" if Custom in choices(kind) else ""
    names = settings_of(name).get("name", "").removesuffix(" | str")
    table = f"{class_of(name)} | Mapping[str, Any]"
    return f"{names}{own} | {table}" if names.startswith("Literal") else table


def class_of(section: str) -> str:
    """The TypedDict of a section; `strategy` has the keys of `sync`, too."""
    return f"{('strategy' if section == 'sync' else section).title()}Section"


def table(name: str, base: str, fields: dict[str, str]) -> str:
    """One TypedDict."""
    lines = [f"class {name}({base}, total=False):", *(f"    {key}: {kind}" for key, kind in fields.items())]
    return "\n".join(lines)


def module() -> str:
    """The whole file."""
    found = list(keywords())
    by_name = {name: kind for _, name, kind in found}
    taken = {
        function: {name: kind for path, name, kind in found if {path, path.partition(".")[0]} & {*paths}}
        for function, paths in TAKES.items()
    }
    sections = [name for name, kind in kinds_of(RunConfig).items() if choices(kind) and name != "sync"]
    shared = {name: kind for name, kind in taken["prune"].items() if name not in OF_FIT}

    def rest(names: Iterable[str]) -> dict[str, str]:
        return {name: by_name[name] for name in names if name not in shared}

    tables = [
        *(table(class_of(name), "TypedDict", settings_of(name)) for name in (*sections, "strategy")),
        table("_Shared", "TypedDict", shared),
        table("FitSettings", "_Shared", rest(name for name in by_name if name not in OF_FIT)),
        table("Settings", "FitSettings", rest(OF_FIT)),
        table("EvaluateSettings", "TypedDict", taken["evaluate"]),
        table("PruneSettings", "_Shared", rest(taken["prune"])),
    ]
    return HEAD + "\n\n\n".join(tables) + "\n"


if __name__ == "__main__":
    print(module(), end="")
