"""The grammar of flags, one for all commands: `--name value`, `--name=value`, and a switch without a value.

A command declares its flags as a dataclass: a field is a flag, its annotation the kind of value (see `kinds`), the
string under it the sentence in the help. In the name of a flag, `_` and `-` are the same. The functions at the end say
how a page of help shows a flag.
"""

import ast
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from shoal.config.choices import Checked, kinds_of
from shoal.config.kinds import UNIONS, Matching, Several, check, parse, without_none
from shoal.errors import ConfigError

_TRUTH = ("true", "false", "yes", "no")
"""The words that a switch takes as its value; any other word after it is not part of it."""


@dataclass(frozen=True)
class Flags(Checked):
    """The flags of a command. A field of one letter is `-x`; one without a default is required."""

    ALIASES: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Other names of flags, by field."""

    help: bool = False
    """Show this page."""


@dataclass(frozen=True)
class Flag:
    """One flag: its names, the kind of its value, and the field that it sets."""

    name: str
    kind: Any = str
    default: Any = None
    aliases: tuple[str, ...] = ()
    owner: type = Flags
    field: str = ""

    def matches(self, name: str) -> bool:
        """Whether `name`, as the user wrote it, is this flag."""
        return _spelled(name) in map(_spelled, (self.name, *self.aliases))

    def read(self, texts: Sequence[str]) -> Any:
        """The value of the texts given for this flag, checked; the last one counts unless the flag is repeatable."""
        if not all(text.strip() for text in texts):
            raise ConfigError(f"{self.name} needs a value")
        text = ";".join(texts) if self.is_repeatable else texts[-1]
        return check(self.kind, parse(self.kind, text), self.name)

    @property
    def is_repeatable(self) -> bool:
        """Whether the flag may be given several times, each adding to a list."""
        return Several() in get_args(self.kind)

    @property
    def is_required(self) -> bool:
        """Whether it must be given."""
        return self.default is MISSING

    @property
    def sentence(self) -> str:
        """The string under the field, from the source: Python keeps no docstrings of fields."""
        found = (
            _sentences(inspect.getsourcefile(base)).get((base.__name__, self.field))
            for base in self.owner.__mro__[:-1]
        )
        return next(filter(None, found), "")


def flags_of(owner: type, prefix: str = "--") -> list[Flag]:
    """The flags that set the fields of a dataclass.

    >>> [flag.name for flag in flags_of(Flags)]
    ['--help']
    """
    aliases: dict[str, tuple[str, ...]] = {"help": ("-h",), **getattr(owner, "ALIASES", {})}
    return [
        Flag(
            f"-{field.name}" if len(field.name) == 1 else prefix + field.name.rstrip("_").replace("_", "-"),
            without_none(kinds_of(owner)[field.name])
            if issubclass(owner, Flags)
            else kinds_of(owner)[field.name],
            field.default,
            aliases.get(field.name, ()),
            owner,
            field.name,
        )
        for field in fields(owner)
    ]


def split(
    words: Sequence[str], find: Callable[[str], Flag], stop_at_word: bool = False
) -> tuple[list[tuple[Flag, str]], list[str]]:
    """The flags with the text of their values, and the other words; `find` knows the flags, and refuses unknown ones.

    With `stop_at_word`, everything from the first word that is no flag belongs to the other words; a `--` may stand
    before it.

    >>> split(["mine.toml", "--seed", "-1", "--quiet"], lambda name: Flag(name, bool if "q" in name else int))[1]
    ['mine.toml']
    >>> split(["--seed", "-1", "--", "mine.py", "--seed"], lambda name: Flag(name, int), stop_at_word=True)[1]
    ['mine.py', '--seed']
    """
    flags: list[tuple[Flag, str]] = []
    others: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if stop_at_word and word == "--":
            return flags, waiting
        if not is_flag(word):
            others.append(word)
            if stop_at_word:
                return flags, others + waiting
            continue
        name, equals, text = word.partition("=")
        flag = find(name)
        if not equals:
            follows = waiting[:1]
            if flag.kind is bool:
                text = waiting.pop(0) if follows and follows[0].lower() in _TRUTH else "true"
            elif not follows or is_flag(follows[0]):
                raise ConfigError(f"{name} needs a value")
            else:
                text = waiting.pop(0)
        flags.append((flag, text))
    return flags, others


def is_flag(word: str) -> bool:
    """Whether a word is a flag: -1 is a number, and "-" is standard output.

    >>> is_flag("--seed=1"), is_flag("-b"), is_flag("-1"), is_flag("-")
    (True, True, False, False)
    """
    return re.match(r"--?[A-Za-z]", word) is not None


def _spelled(name: str) -> str:
    return name.replace("_", "-")


@lru_cache
def _sentences(file: str | None) -> dict[tuple[str, str], str]:
    """The string under each field of each class in a file, by (class, field)."""
    classes = [
        node for node in ast.parse(Path(str(file)).read_text("utf-8")).body if isinstance(node, ast.ClassDef)
    ]
    return {
        (node.name, field.target.id): " ".join(str(text.value.value).split())
        for node in classes
        for field, text in zip(node.body, node.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


def usage_of(flag: Flag) -> str:
    """A flag with a word for its value: `--workers N`."""
    return flag.name if flag.kind is bool else f"{flag.name} {_placeholder(flag.kind)}"


def sentence_of(flag: Flag) -> str:
    """Its sentence, with the default."""
    shown = "" if flag.kind is bool else default_of(flag)
    return f"{flag.sentence.removesuffix('.')} (default {shown})." if shown else flag.sentence


def _placeholder(kind: Any) -> str:
    """The word that stands for a value of this kind in the help.

    >>> _placeholder(int), _placeholder(Literal["en", "zh"])
    ('N', 'en|zh')
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin in UNIONS:
        return _placeholder(parts[0])
    if origin is Annotated:
        return next(
            (limit.word for limit in parts[1:] if isinstance(limit, Matching)), _placeholder(parts[0])
        )
    if origin is Literal and len("|".join(parts)) < 30:
        return "|".join(parts)
    words: dict[Any, str] = {int: "N", float: "X", Path: "PATH", tuple: "LIST"}
    return words.get(origin or kind, "NAME")


def default_of(flag: Flag) -> str:
    """The default as the user would write it; empty if there is none."""
    default = flag.default
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    if default is None or default is MISSING:
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)
