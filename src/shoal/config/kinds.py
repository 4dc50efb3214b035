"""The kinds of values a setting takes: one place that checks a value and one that reads a flag's text.

A kind is an ordinary annotation: int, float, bool, str, a Literal, a tuple of one kind, a union of these, and
`Annotated` with the limits below.
"""

import dataclasses
import math
import types
import typing
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, get_args, get_origin

from shoal.errors import ConfigError, unknown


@dataclass(frozen=True)
class AtLeast:
    """The smallest value that is allowed."""

    limit: float

    def holds(self, value: Any) -> bool:
        """Whether the value keeps the limit."""
        return value >= self.limit

    def __str__(self) -> str:
        return f"of at least {self.limit:g}"


@dataclass(frozen=True)
class MoreThan:
    """The value below which, and at which, nothing is allowed."""

    limit: float

    def holds(self, value: Any) -> bool:
        """Whether the value keeps the limit."""
        return value > self.limit

    def __str__(self) -> str:
        return f"above {self.limit:g}"


@dataclass(frozen=True)
class Below:
    """The value that is already too large."""

    limit: float

    def holds(self, value: Any) -> bool:
        """Whether the value keeps the limit."""
        return value < self.limit

    def __str__(self) -> str:
        return f"below {self.limit:g}"


@dataclass(frozen=True)
class Importable:
    """A name of the form package.module:function."""

    def holds(self, value: Any) -> bool:
        """Whether the value has the form; whether it exists is seen when it is imported."""
        module, colon, function = value.partition(":")
        return bool(colon) and all(part.isidentifier() for part in [*module.split("."), *function.split(".")])

    def __str__(self) -> str:
        return "of the form package.module:function"


ImportPath = Annotated[str, Importable()]


@dataclass(frozen=True)
class Several:
    """A list whose flag may be given several times; in one text, its items stand between semicolons."""

    def holds(self, value: Any) -> bool:
        """Any list will do."""
        del value
        return True

    def __str__(self) -> str:
        return "(the flag may be given several times)"


def check(kind: Any, value: Any, where: str) -> Any:
    """The value, if it is of this kind (whole numbers count as floats, lists as tuples); else a ConfigError.

    >>> check(tuple[int, ...], [128, 64], "model.hidden")
    (128, 64)
    >>> check(Annotated[int, AtLeast(1)], 0, "train.epochs")
    Traceback (most recent call last):
        ...
    shoal.errors.ConfigError: train.epochs must be a whole number of at least 1, not 0
    """
    accepted, converted = _accept(kind, value)
    if accepted:
        return converted
    words = literals(kind)
    if words and isinstance(value, str):
        raise ConfigError(unknown(where, value, words))
    raise ConfigError(f"{where} must be {describe(kind)}, not {_shown(value)}{_reason(value)}")


def _shown(value: Any) -> str:
    """A refused value as one would write it: a list without Python's brackets."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "an empty list"
    return repr(value) if isinstance(value, str) else str(value)


def _reason(value: Any) -> str:
    """Why a number is refused that seems to be of the kind."""
    numbers = value if isinstance(value, list | tuple) else (value,)
    if any(isinstance(number, int) and not _fits(number) for number in numbers):
        return ": it has more than 64 bits"
    if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
        return ": it is not finite"
    return ""


def _fits(number: int) -> bool:
    """Whether torch, which counts in 64 bits, can take this whole number."""
    return -(2**63) <= number < 2**63


def _accept(kind: Any, value: Any) -> tuple[bool, Any]:
    origin = get_origin(kind)
    if origin is Annotated:
        base, *limits = get_args(kind)
        if Several() in limits and isinstance(value, str):
            value = parse(kind, value)  # one item needs no brackets
        accepted, converted = _accept(base, value)
        return accepted and all(limit.holds(converted) for limit in limits), converted
    if origin in (types.UnionType, typing.Union):
        for part in get_args(kind):
            accepted, converted = _accept(part, value)
            if accepted:
                return True, converted
        return False, value
    if origin is Literal:
        return value in get_args(kind), value
    if origin is tuple:
        return _accept_tuple(get_args(kind), value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return _fits(value), float(value) if _fits(value) else value
    if kind is float:
        return isinstance(value, float) and math.isfinite(value), value
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and _fits(value), value
    if isinstance(value, str) and hasattr(kind, "from_text"):
        return True, kind.from_text(value)  # pyright: ignore[reportAttributeAccessIssue]
    return isinstance(value, kind), value


def _accept_tuple(kinds: tuple[Any, ...], value: Any) -> tuple[bool, Any]:
    if not isinstance(value, list | tuple):
        return False, value
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(kinds) != len(value):
        return False, value
    answers = [_accept(kind, item) for kind, item in zip(kinds, value, strict=True)]
    return all(accepted for accepted, _ in answers), tuple(converted for _, converted in answers)


def parse(kind: Any, text: str) -> Any:
    """What a flag's text means for this kind; text that means nothing is given back for `check` to refuse.

    >>> parse(int | Literal["all"] | None, "all"), parse(tuple[int, ...], "128,64"), parse(int | None, "none")
    ('all', (128, 64), None)
    """
    origin = get_origin(kind)
    if origin is Annotated:
        base, *limits = get_args(kind)
        if Several() in limits:
            return tuple(item.strip() for item in text.split(";") if item.strip())
        return parse(base, text)
    if origin in (types.UnionType, typing.Union):
        for part in get_args(kind):
            value = parse(part, text)
            if _accept(part, value)[0]:
                return value
        # None of the parts takes it; the number, if it is one, makes the better error.
        return parse(get_args(kind)[0], text)
    if origin is tuple:
        return tuple(parse(get_args(kind)[0], item) for item in text.split(",") if item.strip())
    if kind is types.NoneType:
        return None if text.lower() == "none" else text
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            return text
    return text


def describe(kind: Any) -> str:
    """The kind in words, for errors and `--help`.

    >>> describe(Annotated[int, AtLeast(1)] | Literal["all"] | None)
    "a whole number of at least 1, 'all' or none"
    """
    origin = get_origin(kind)
    if origin is Annotated:
        base, *limits = get_args(kind)
        return f"{describe(base)} {' and '.join(map(str, limits))}"
    if origin in (types.UnionType, typing.Union):
        parts = [describe(part) for part in get_args(kind)]
        return f"{', '.join(parts[:-1])} or {parts[-1]}"
    if origin is Literal:
        return " or ".join(repr(word) for word in get_args(kind))
    if origin is tuple:
        return f"a list, each {describe(get_args(kind)[0])}"
    if hasattr(kind, "from_text"):
        return "text"
    names = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text",
        types.NoneType: "none",
    }
    return names.get(kind, str(kind))


def literals(kind: Any) -> tuple[str, ...]:
    """The words a kind allows, if it allows nothing but words."""
    return get_args(kind) if get_origin(kind) is Literal else ()


@lru_cache
def kinds_of(schema: type) -> dict[str, Any]:
    """The fields of a dataclass with their kinds, annotations resolved."""
    hints = typing.get_type_hints(schema, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(schema)}


def choices(kind: Any) -> tuple[type, ...]:
    """The dataclasses a field chooses from: several for a choice, one for a section, none for a plain value."""
    parts = get_args(kind) if get_origin(kind) in (types.UnionType, typing.Union) else (kind,)
    return tuple(part for part in parts if dataclasses.is_dataclass(part) and isinstance(part, type))


def by_name(options: tuple[type, ...]) -> dict[str, type]:
    """The choices that have a name of ours, by it."""
    named = {option: literals(kinds_of(option).get("name")) for option in options}
    return {words[0]: option for option, words in named.items() if words}


def in_short(named: dict[str, type], text: str) -> tuple[str, dict[str, Any]]:
    """A choice written with its main setting, `by:ring`, as the name and that setting; any other text is a name.

    A choice takes this form if it names the setting: `SHORT = "algorithm"`.
    """
    name, colon, value = text.partition(":")
    setting: str | None = getattr(named.get(name), "SHORT", None)
    if not colon or setting is None:
        return text, {}
    return name, {setting: parse(kinds_of(named[name])[setting], value)}


def written_whole(named: dict[str, type], text: str) -> str | None:
    """The whole name, `by:ring`, for somebody who wrote the main setting alone; none if it is nobody's."""
    for name, choice in named.items():
        setting: str | None = getattr(choice, "SHORT", None)
        if setting and text in literals(kinds_of(choice)[setting]):
            return f"{name}:{text}"
    return None


def options_of(choice: Any) -> dict[str, Any]:
    """The settings of a choice without its name: what its constructor takes by keyword."""
    return {name: getattr(choice, name) for name in kinds_of(type(choice)) if name != "name"}


@dataclass(frozen=True)
class Checked:
    """A dataclass whose values are checked when it is made, from a file, from flags or from Python alike."""

    def __post_init__(self) -> None:
        for name, kind in kinds_of(type(self)).items():
            if not choices(kind):
                checked = check(
                    kind, getattr(self, name), f"{type(self).__name__.removesuffix('Config').lower()}.{name}"
                )
                object.__setattr__(self, name, checked)  # a list became a tuple, a whole number a float
