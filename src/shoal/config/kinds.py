"""The kinds of values a setting takes: check a value, read a flag's text, describe the kind in words.

A kind is an ordinary annotation: int, float, bool, str, a Literal, a tuple of one kind, a union of these, a class, or
`Annotated` with the limits below. `Any` takes any value.
"""

import math
import operator
import re
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from shoal.errors import ConfigError, unknown
from shoal.printable import shortened

UNIONS = (types.UnionType, typing.Union)
"""The origins of `int | None` and of `Optional[int]`."""

_HOLDS: dict[str, Callable[[Any, float], bool]] = {
    "≥": operator.ge,
    ">": operator.gt,
    "≤": operator.le,
    "<": operator.lt,
}


@dataclass(frozen=True)
class Limit:
    """A limit of a number."""

    sign: str
    limit: float

    def holds(self, value: Any) -> bool:
        """Whether the value keeps the limit."""
        return _HOLDS[self.sign](value, self.limit)

    def __str__(self) -> str:
        return f"{self.sign} {self.limit:g}"


AtLeast, MoreThan, AtMost, Below = (partial(Limit, sign) for sign in _HOLDS)


@dataclass(frozen=True)
class Matching:
    """Text that matches a pattern; `form` describes the pattern, `word` stands for the text in the help."""

    pattern: str
    form: str
    word: str = "NAME"

    def holds(self, value: Any) -> bool:
        """Whether the whole text matches."""
        return re.fullmatch(self.pattern, value) is not None

    def __str__(self) -> str:
        return f"of the form {self.form}"


@dataclass(frozen=True)
class Among:
    """One of the keys of a table: numbers or words. For words that only the annotation lists, use a Literal."""

    values: tuple[int | str, ...]

    def holds(self, value: Any) -> bool:
        """Whether the value is one of them."""
        return value in self.values

    def __str__(self) -> str:
        return f"among {', '.join(map(str, self.values))}"


@dataclass(frozen=True)
class NotEmpty:
    """Text of at least one character."""

    def holds(self, value: Any) -> bool:
        """Whether there is one."""
        return bool(value)

    def __str__(self) -> str:
        return "that is not empty"


Text = Annotated[str, NotEmpty()]

_NAME = r"[^\W\d]\w*"
_DOTTED = rf"{_NAME}(\.{_NAME})*"
ImportPath = Annotated[str, Matching(f"{_DOTTED}:{_DOTTED}", "package.module:function")]


@dataclass(frozen=True)
class Several:
    """A list whose flag may be repeated; in one text, semicolons separate its items."""

    def holds(self, _: Any) -> bool:
        """Any list will do."""
        return True

    def __str__(self) -> str:
        return "(repeatable)"


def check(kind: Any, value: Any, where: str) -> Any:
    """The value, if it is of this kind, else a ConfigError; converts an int to a float, a list to a tuple.

    >>> check(tuple[int, ...], [128, 64], "model.hidden")
    (128, 64)
    >>> check(Annotated[int, AtLeast(1)], 0, "train.epochs")
    Traceback (most recent call last):
        ...
    shoal.errors.ConfigError: train.epochs: expected an integer ≥ 1, got 0
    """
    accepted, converted = accepts(kind, value)
    if accepted:
        return converted
    if isinstance(value, str) and (words := literals(kind)):
        raise ConfigError(unknown(where.lstrip("-"), shortened(value), words))
    raise ConfigError(f"{where}: {expected(kind, value)}")


def expected(kind: Any, value: Any) -> str:
    """The end of the sentence that refuses a value.

    >>> expected(int, "two")
    "expected an integer, got 'two'"
    """
    return f"expected {describe(kind)}, got {_shown(value)}{_reason(value)}"


def _shown(value: Any) -> str:
    """A refused value as the user writes it: a list without Python's brackets, other objects by their type."""
    if isinstance(value, list | tuple):
        return shortened(",".join(_shown(item).strip("'") for item in value)) or "an empty list"
    if not isinstance(value, str | int | float | Path | dict | None):
        return f"a value of type {type(value).__name__}"
    try:
        return shortened(repr(value) if isinstance(value, str) else str(value))
    except (ValueError, RecursionError):
        return "an integer of thousands of digits" if isinstance(value, int) else "a deeply nested value"


def _reason(value: Any) -> str:
    numbers = value if isinstance(value, list | tuple) else (value,)
    for text in numbers:
        if isinstance(text, str | Path) and (why := _unwritable(str(text))):
            return f", which {why}"
    if any(isinstance(number, int) and not _fits(number) for number in numbers):
        return ", which does not fit in 64 bits"
    if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
        return ", which is not finite"
    return ""


def _fits(number: int) -> bool:
    return -(2**63) <= number < 2**63  # torch's int64


def accepts(kind: Any, value: Any) -> tuple[bool, Any]:
    """Whether a value is of this kind; and the value, converted where `check` says so."""
    origin = get_origin(kind)
    if origin is Annotated:
        base, *limits = get_args(kind)
        if Several() in limits and isinstance(value, str):
            value = parse(kind, value)  # one item needs no brackets
        accepted, converted = accepts(base, value)
        return accepted and all(limit.holds(converted) for limit in limits), converted
    if origin in UNIONS:
        for part in get_args(kind):
            accepted, converted = accepts(part, value)
            if accepted:
                return True, converted
        return False, value
    if origin is Literal:
        return any(isinstance(value, type(word)) and value == word for word in get_args(kind)), value
    if origin is tuple:
        return _accept_tuple(get_args(kind), value)
    if isinstance(kind, typing.TypeVar):
        return accepts(kind.__bound__ or Any, value)
    if origin is Sequence:
        return _accepts_sequence(get_args(kind)[0], value)
    if origin in (Callable, Mapping, dict):
        return isinstance(value, origin), value
    if kind is Any or origin is not None:  # torch takes anything like a Dataset[…]
        return True, value
    if getattr(value, "ndim", None) == 0 and kind in _NUMBERS and not getattr(value, "is_meta", False):
        value = value.item()  # a number of numpy, or a tensor of one element
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if kind is typing.SupportsIndex:
        return is_integer, value
    if kind is int:
        return is_integer and _fits(value), value
    if kind is float and is_integer:
        return _fits(value), float(value) if _fits(value) else value
    if kind is float:
        return isinstance(value, float) and math.isfinite(value), value
    if isinstance(value, str) and hasattr(kind, "from_text"):
        return True, kind.from_text(value)  # pyright: ignore[reportAttributeAccessIssue]
    return isinstance(value, kind) and not (kind in (str, Path) and _unwritable(str(value))), value


def _accepts_sequence(kind: Any, value: Any) -> tuple[bool, Any]:
    """Whether a value is a collection, but no text. Items are checked if they are plain; arrays become lists."""
    is_plain = kind in _WORDS or get_origin(kind) in UNIONS
    if is_plain and getattr(value, "ndim", 0) and not getattr(value, "is_meta", False):
        value = value.tolist()
    if is_plain and isinstance(value, list | tuple):
        return all(accepts(kind, item)[0] for item in value), value
    is_array = is_plain and hasattr(value, "ndim")  # without elements
    is_text = isinstance(value, str | bytes | Mapping)
    return isinstance(value, Collection) and not is_array and not is_text, value


def _unwritable(text: str) -> str:
    """Why a text cannot be a name, a path or a line of a file; empty if it can."""
    if "\0" in text:
        return "holds a NUL character"
    if text and not text.strip():
        return "is blank"
    return "is not valid Unicode" if re.search("[\ud800-\udfff]", text) else ""


def _accept_tuple(kinds: tuple[Any, ...], value: Any) -> tuple[bool, Any]:
    if not isinstance(value, list | tuple):
        return False, value
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(kinds) != len(value):
        return False, value
    answers = [accepts(kind, item) for kind, item in zip(kinds, value, strict=True)]
    return all(accepted for accepted, _ in answers), tuple(converted for _, converted in answers)


def parse(kind: Any, text: str) -> Any:
    """The value of a flag's text; text that is not of this kind is returned as it is, for `check` to refuse.

    >>> parse(int | Literal["all"] | None, "all"), parse(tuple[int, ...], "128,64"), parse(int | None, "none")
    ('all', (128, 64), None)
    """
    origin = get_origin(kind)
    if origin is Annotated:
        base, *limits = get_args(kind)
        return _items(text, ";") if Several() in limits else parse(base, text)
    if origin in UNIONS:
        for part in get_args(kind):
            value = parse(part, text)
            if accepts(part, value)[0]:
                return value
        # No part takes it. If it is a number, the error shows it as one.
        return parse(get_args(kind)[0], text)
    if origin is tuple:
        items = _items(text, ",")
        return text if isinstance(items, str) else tuple(parse(get_args(kind)[0], item) for item in items)
    if kind is types.NoneType:
        return None if text.lower() == "none" else text
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind is Path:
        return Path(text) if text else text
    if kind in (int, float):
        try:
            # Only Python reads 1_000 as a number.
            return kind(text) if text.isascii() and "_" not in text else text
        except ValueError:  # also an integer of more than 4,300 digits
            return text
    return str(text)


def _items(text: str, separator: str) -> tuple[str, ...] | str:
    """The items of a list; the text itself if one is missing, as in `4,,4`. Only an empty text is an empty list."""
    items = tuple(item.strip() for item in text.split(separator)) if text else ()
    return items if all(items) else text


def describe(kind: Any) -> str:
    """The kind in words, for errors and `--help`.

    >>> describe(Annotated[int, AtLeast(1)] | Literal["all"] | None)
    "an integer ≥ 1, 'all' or none"
    """
    origin = get_origin(kind)
    if words := literals(kind):
        return either([repr(word) for word in words])
    if origin is Annotated:
        base, *limits = get_args(kind)
        return f"{describe(base)} {' and '.join(map(str, limits))}"
    if origin in UNIONS:
        return either([describe(part) for part in get_args(kind)])
    if origin is tuple or (origin is Sequence and get_args(kind)[0] in _WORDS):
        first, *rest = describe(get_args(kind)[0]).removeprefix("an ").removeprefix("a ").split(" ")
        return " ".join(["a list of", f"{first}s", *rest])
    if hasattr(kind, "from_text"):
        return "text"
    name = getattr(origin or kind, "__name__", str(kind))
    return _WORDS.get(origin or kind, f"{'an' if name[0] in 'AEIOU' else 'a'} {name}")


_NUMBERS = (int, float, bool, typing.SupportsIndex)
_WORDS: dict[Any, str] = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    typing.SupportsIndex: "an integer",
    Callable: "a function",
    dict: "a dictionary",
    Sequence: "a list",
    Mapping: "a dictionary",
    types.NoneType: "none",
}


def either(words: Sequence[str]) -> str:
    """Alternatives in a sentence.

    >>> either(["sgd", "adam", "adamw"])
    'sgd, adam or adamw'
    """
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def without_none(kind: Any) -> Any:
    """The kind less None, for a value that may be left out.

    >>> without_none(int | None), without_none(str)
    (<class 'int'>, <class 'str'>)
    """
    parts = tuple(part for part in get_args(kind) if part is not types.NoneType)
    return typing.Union[parts] if get_origin(kind) in UNIONS else kind  # noqa: UP007


def literals(kind: Any) -> tuple[str, ...]:
    """The words of a Literal, or of a table whose keys they are; empty for any other kind."""
    if get_origin(kind) is Annotated:
        among = (limit.values for limit in get_args(kind)[1:] if isinstance(limit, Among))
        return tuple(word for word in next(among, ()) if isinstance(word, str))
    return get_args(kind) if get_origin(kind) is Literal else ()
