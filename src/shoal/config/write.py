"""Write a RunConfig as TOML, for the run folder, and as a flat table of settings."""

from dataclasses import fields, is_dataclass
from typing import Any

from shoal.config.conditions import Condition
from shoal.config.schema import RunConfig
from shoal.config.sections.values import Custom


def to_toml(config: RunConfig) -> str:
    """Every setting of the run, defaults included; None is left out. Read back, it gives the same run."""
    values, sections = [], []
    for field in fields(config):
        value = getattr(config, field.name)
        lines = [f"{key} = {literal(item)}\n" for key, item in _pairs(field.name, value) if item is not None]
        if is_dataclass(value):
            sections += [f"\n[{field.name}]\n", *lines]
        else:
            values += lines
    return "".join(values + sections)


def flat(config: RunConfig) -> dict[str, Any]:
    """Every setting by its path.

    >>> flat(RunConfig(seed=3))["seed"], flat(RunConfig())["optimizer.name"]
    (3, 'adam')
    """
    settings: dict[str, Any] = {}
    for field in fields(config):
        value = getattr(config, field.name)
        prefix = f"{field.name}." if is_dataclass(value) else ""
        settings |= {prefix + key: item for key, item in _pairs(field.name, value)}
    return settings


def _pairs(name: str, value: Any) -> list[tuple[str, Any]]:
    """The settings of a section, or the one setting of this name."""
    if isinstance(value, Custom):
        return [("name", value.name), *value.options]
    if is_dataclass(value):
        return [(field.name, getattr(value, field.name)) for field in fields(value)]
    return [(name, value)]


def literal(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(map(literal, value)) + "]"
    if isinstance(value, str | Condition):
        return '"' + "".join(_ESCAPES.get(letter, letter) for letter in str(value)) + '"'
    return repr(value)


_ESCAPES = {'"': '\\"', "\\": "\\\\", **{chr(code): f"\\u{code:04x}" for code in [*range(32), 127]}}
