"""A RunConfig in other forms: TOML under a checksum, a flat table of settings, plain data for another process.

Plain data are dictionaries, lists, numbers and texts. The values were parsed and checked when the config was made; they
are rebuilt as they are, and nothing is parsed again.
"""

import hashlib
import re
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, cast, get_args, get_origin

from shoal.config.choices import by_name, choices, kinds_of
from shoal.config.conditions import Condition
from shoal.config.schema import RunConfig, check_consent
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError


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


def changed(config: RunConfig) -> dict[str, tuple[Any, Any]]:
    """The settings that are not the defaults, by path, with both values.

    The settings of a chosen optimizer, model, … are compared with that choice's own defaults.

    >>> from shoal.config.sections.optimizer import SgdConfig
    >>> changed(RunConfig(seed=3, optimizer=SgdConfig(lr=0.5)))
    {'seed': (3, 0), 'optimizer.name': ('sgd', 'adam'), 'optimizer.lr': (0.5, 0.1)}
    """
    default = RunConfig()
    found: dict[str, tuple[Any, Any]] = {}
    for section in fields(config):
        value, usual = getattr(config, section.name), getattr(default, section.name)
        prefix = f"{section.name}." if is_dataclass(value) else ""
        usual_values = dict(_pairs(section.name, usual))
        if is_dataclass(value) and type(value) is not type(usual):
            own = {field.name: field.default for field in fields(value) if field.default is not MISSING}
            usual_values = {**own, "name": usual_values["name"]}
        found |= {
            prefix + key: (item, usual_values.get(key))
            for key, item in _pairs(section.name, value)
            if item != usual_values.get(key)
        }
    return found


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


def to_plain(config: RunConfig) -> dict[str, Any]:
    """The config as data that JSON can hold. The other process cannot ask for consent, so it is required here."""
    check_consent(config)
    return asdict(config)


def from_plain(data: dict[str, Any]) -> RunConfig:
    """The config that `to_plain` was given, also after a detour through JSON.

    >>> config = RunConfig(seed=3)
    >>> from_plain(to_plain(config)) == config
    True
    """
    return _rebuilt(RunConfig, data)


def _rebuilt(kind: Any, value: Any) -> Any:
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    options = choices(kind)
    if options and isinstance(value, dict):
        settings = cast(dict[str, Any], value)
        otherwise = Custom if Custom in options else options[0]
        schema = by_name(options).get(settings.get("name", ""), otherwise)
        return schema(**{key: _rebuilt(kinds_of(schema)[key], item) for key, item in settings.items()})
    if isinstance(value, list | tuple):
        item_kind = get_args(kind)[0] if get_origin(kind) is tuple else None
        return tuple(_rebuilt(item_kind, item) for item in value)
    return value


_LINE = "# Written by shoal. sha256 of the lines below: "


def sealed(text: str) -> str:
    """The text below a comment with its checksum.

    >>> sealed("seed = 1\\n").splitlines()[1]
    'seed = 1'
    """
    return f"{_LINE}{_sha256(text)}\n{text}"


def check_seal(text: str, source: Path) -> None:
    """Refuse text that differs from what was sealed; text without a checksum, as earlier versions wrote it, passes.

    >>> check_seal(sealed("seed = 1").replace("1", "3"), Path("config.toml"))
    Traceback (most recent call last):
        ...
    shoal.errors.ConfigError: config.toml is damaged or was edited: its sha256 does not match its first line
      If you edited it on purpose, delete its first line.
    """
    found = re.match(re.escape(_LINE) + "(.*)\n", text)
    if found and found[1] != _sha256(text[found.end() :]):
        raise ConfigError(
            f"{source} is damaged or was edited: its sha256 does not match its first line",
            "If you edited it on purpose, delete its first line.",
        )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
