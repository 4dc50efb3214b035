"""Settings as dataclasses: a section with its fields, and a choice, which is one of several by its name."""

import dataclasses
import typing
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_origin

from shoal.config.kinds import UNIONS, accepts, check, either, literals, parse
from shoal.errors import ConfigError


@cache
def kinds_of(schema: type) -> dict[str, Any]:
    """The fields of a dataclass with their kinds, annotations resolved."""
    hints = typing.get_type_hints(schema, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(schema)}


@cache
def choices(kind: Any) -> tuple[type, ...]:
    """The dataclasses that a field accepts: several for a choice, one for a section, none for a plain value."""
    parts = get_args(kind) if get_origin(kind) in UNIONS else (kind,)
    return tuple(part for part in parts if dataclasses.is_dataclass(part) and isinstance(part, type))


def by_name(options: tuple[type, ...]) -> dict[str, type]:
    """The choices by name; the user's own function has none here."""
    return {words[0]: option for option in options if (words := literals(kinds_of(option).get("name")))}


def in_short(named: dict[str, type], text: str) -> tuple[str, dict[str, Any]]:
    """Split `by:ring`, a choice with its main setting, into the name and that setting; any other text is a name.

    A choice has this form if it declares its main setting: `SHORT = "algorithm"`. A path may stand alone.
    """
    of_path = next((word for word, option in named.items() if getattr(option, "SHORT", "") == "path"), None)
    if of_path and "/" in text and not text.startswith(f"{of_path}:"):
        return of_path, {"path": text}
    name, colon, value = text.partition(":")
    setting: str | None = getattr(named.get(name), "SHORT", None)
    if not colon or setting is None:
        return text, {}
    return name, {setting: parse(kinds_of(named[name])[setting], value)}


def options_of(choice: Any) -> dict[str, Any]:
    """The settings of a choice without its name, as keyword arguments for what it configures."""
    return {name: getattr(choice, name) for name in kinds_of(type(choice)) if name != "name"}


@dataclass(frozen=True)
class Checked:
    """A dataclass that checks its values when it is made, whether from a file, from flags or in Python."""

    def __post_init__(self) -> None:
        for name, kind in kinds_of(type(self)).items():
            where, value = f"{type(self).__name__}.{name}", getattr(self, name)
            if not (classes := choices(kind)):
                # Set again, because a list has become a tuple, an int a float.
                object.__setattr__(self, name, check(kind, value, where))
            elif not accepts(kind, value)[0]:
                names = [choice.__name__ for choice in classes]
                raise ConfigError(
                    f"{where}: expected {either(names)}, got a {type(value).__name__}",
                    f"For example {name}={names[0]}(), from {classes[0].__module__}.",
                )
