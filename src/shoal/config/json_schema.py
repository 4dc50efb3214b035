"""The JSON schema of recipes: every section and setting, from the dataclasses of the settings, for editors."""

import inspect
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING
from typing import Annotated, Any, get_args, get_origin

from shoal.config.choices import by_name, choices, kinds_of
from shoal.config.flags import flags_of
from shoal.config.kinds import UNIONS, Among, Limit, Matching, NotEmpty, Several, literals
from shoal.config.schema import RunConfig
from shoal.config.sections.sync import STRATEGIES
from shoal.config.sections.values import AmongOrOwn, Custom

Schema = dict[str, Any]

_TYPES: Mapping[Any, str] = {
    int: "integer",
    typing.SupportsIndex: "integer",
    float: "number",
    bool: "boolean",
}
_LIMITS = {"≥": "minimum", ">": "exclusiveMinimum", "≤": "maximum", "<": "exclusiveMaximum"}
_OWN: Schema = {"type": "string", "pattern": "^[^:]+:[^:]+$"}


def recipe_schema() -> Schema:
    """The schema of a recipe: a table of settings and sections.

    >>> sorted(recipe_schema()["properties"]["seed"])
    ['default', 'description', 'type']
    """
    defaults = RunConfig()
    kinds = {name: kind for name, kind in kinds_of(RunConfig).items() if choices(kind)}
    sections = {name: _section(choices(kind), type(getattr(defaults, name))) for name, kind in kinds.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A recipe of shoal",
        **_table(RunConfig, {**_settings(RunConfig), "strategy": _strategy(), **sections}),
    }


def schema_of(kind: Any) -> Schema:
    """The schema of one kind of value. A recipe has no None: a setting that is none is left out.

    >>> schema_of(tuple[int, ...])
    {'type': 'array', 'items': {'type': 'integer'}}
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _limited(schema_of(parts[0]), parts[1:])
    if origin in UNIONS:
        found = [schema_of(part) for part in parts if part is not types.NoneType]
        return found[0] if len(found) == 1 else {"anyOf": found}
    if words := literals(kind):
        return {"enum": list(words)}
    if origin is tuple:
        return {"type": "array", "items": schema_of(parts[0])}
    return {"type": _TYPES.get(kind, "string")}


def _limited(schema: Schema, limits: tuple[Any, ...]) -> Schema:
    for limit in limits:
        if isinstance(limit, Limit):
            schema[_LIMITS[limit.sign]] = limit.limit
        elif isinstance(limit, Matching):
            schema["pattern"] = f"^(?:{limit.pattern})$"
        elif isinstance(limit, Among):
            schema = {"enum": list(limit.values)}
            if isinstance(limit, AmongOrOwn):
                schema = {"anyOf": [schema, _OWN]}
        elif isinstance(limit, NotEmpty):
            schema["minLength"] = 1
        elif isinstance(limit, Several):
            schema = {"anyOf": [schema, {"type": "string"}]}
    return schema


def _settings(owner: type) -> dict[str, Schema]:
    """The settings of a dataclass without those that are sections."""
    found: dict[str, Schema] = {}
    for flag in flags_of(owner):
        if not choices(flag.kind):
            default = {} if flag.default in (None, MISSING) else {"default": flag.default}
            found[flag.field] = {**schema_of(flag.kind), "description": flag.sentence, **default}
    return found


def _table(owner: type, settings: Mapping[str, Schema], required: bool = False) -> Schema:
    """A table with these settings and no others."""
    return {
        "type": "object",
        "description": " ".join((inspect.getdoc(owner) or "").split()),
        "properties": dict(settings),
        "required": ["name"] * required,
        "additionalProperties": False,
    }


def _section(options: tuple[type, ...], default: type) -> Schema:
    """A section: one table, or a choice by name."""
    named = by_name(options)
    if not named:
        return _table(options[0], _settings(options[0]))
    tables = [_table(each, _named(each, name), each is not default) for name, each in named.items()]
    takes_path = any(getattr(each, "SHORT", "") == "path" for each in options)
    return _choice(list(named), tables, Custom in options, "[:/]" if takes_path else ":")


def _named(choice: type, name: str) -> dict[str, Schema]:
    """The settings of a choice; its name may also be the short form with its main setting, `by:ring`."""
    is_short = hasattr(choice, "SHORT")
    return {**_settings(choice), "name": {"pattern": f"^{name}(:.+)?$"} if is_short else {"const": name}}


def _choice(names: list[str], tables: list[Schema], takes_own: bool, own_names: str = ":") -> Schema:
    """A name, or a table of that choice; or one of the user's own, with any settings and a name of that pattern."""
    own = {
        "type": "object",
        "properties": {"name": _OWN},
        "required": ["name"],
        "additionalProperties": {"type": ["boolean", "number", "string"]},
    }
    texts = [{"enum": names}, *([{"type": "string", "pattern": own_names}] if takes_own else [])]
    return {"anyOf": [*texts, *tables, *([own] if takes_own else [])]}


def _strategy() -> Schema:
    """A strategy, with the settings of its layout and its sync; without a name, with the settings of every sync."""
    kinds = kinds_of(RunConfig)
    syncs = by_name(choices(kinds["sync"]))
    tables: list[Schema] = []
    for name, (layout, sync) in STRATEGIES.items():
        owners = [choices(kinds[axis])[0] for axis in layout.split("+") if layout != "whole"] + [syncs[sync]]
        settings = {key: value for owner in owners for key, value in _settings(owner).items()}
        tables.append(_table(owners[0], {**settings, "name": {"const": name}}, required=True))
    unnamed = {key: {} for sync in syncs.values() for key in _settings(sync) if key != "name"}
    tables.append({"type": "object", "properties": unnamed, "additionalProperties": False})
    return _choice([*STRATEGIES], tables, takes_own=True)
