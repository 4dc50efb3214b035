"""Write a RunConfig as TOML, for the run folder; read back, it gives the same run."""

from dataclasses import fields, is_dataclass
from typing import Any

from shoal.config.schema import Custom, RunConfig


def to_toml(config: RunConfig) -> str:
    """Every setting of the run, defaults included; None is left out, because TOML has no word for it."""
    values, sections = [], []
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            sections.append(f"\n[{field.name}]\n" + "".join(_settings(value)))
        elif value is not None:
            values.append(f"{field.name} = {_literal(value)}\n")
    return "".join(values + sections)


def _settings(section: Any) -> list[str]:
    if isinstance(section, Custom):
        pairs = [("name", section.name), *section.options]
    else:
        pairs = [(field.name, getattr(section, field.name)) for field in fields(section)]
    return [f"{key} = {_literal(value)}\n" for key, value in pairs if value is not None]


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    if isinstance(value, str):
        return '"' + "".join(_ESCAPES.get(letter, letter) for letter in value) + '"'
    return repr(value)


_ESCAPES = {'"': '\\"', "\\": "\\\\", **{chr(code): f"\\u{code:04x}" for code in [*range(32), 127]}}
