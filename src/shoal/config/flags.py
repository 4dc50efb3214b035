"""The grammar of flags, one for all commands: `--name value`, `--name=value`, and a switch without a value.

A command declares its flags as data. Reading them, every error, and the page that `--help` shows follow from that. In
a flag's name, `_` and `-` are the same.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from shoal.config.kinds import Several, check, literals, parse
from shoal.errors import ConfigError

_TRUTH = ("true", "false", "yes", "no")
"""The words that a switch takes as its value; any other word after it is not part of it."""


@dataclass(frozen=True)
class Flag:
    """One flag: its name, what it takes, and its sentence in the help."""

    name: str
    sentence: str = ""
    kind: Any = str
    """See `config.kinds`; bool is a switch."""
    default: Any = None
    value: str = ""
    """Stands for the value in the help; made from the kind if empty."""
    aliases: tuple[str, ...] = ()
    required: bool = False

    def matches(self, name: str) -> bool:
        """Whether `name`, as the user wrote it, is this flag."""
        return _spelled(name) in map(_spelled, (self.name, *self.aliases))

    def read(self, texts: Sequence[str]) -> Any:
        """The value of the texts given for this flag, checked; the last one counts unless the flag is repeatable."""
        text = ";".join(texts) if self.is_repeatable else texts[-1]
        return check(self.kind, parse(self.kind, text), self.name)

    @property
    def is_repeatable(self) -> bool:
        """Whether the flag may be given several times, each adding to a list."""
        return Several() in get_args(self.kind)

    @property
    def usage(self) -> str:
        """The flag with a word for its value: `--workers N`.

        >>> from typing import Literal
        >>> Flag("--workers", kind=int).usage, Flag("--lang", kind=Literal["en", "zh"]).usage
        ('--workers N', '--lang en|zh')
        """
        if self.kind is bool:
            return self.name
        base = get_args(self.kind)[0] if hasattr(self.kind, "__metadata__") else self.kind
        word = self.value or "|".join(literals(base)) or {int: "N", float: "X", str: "TEXT"}.get(base, "LIST")
        return f"{self.name} {word}"


def split(
    words: Sequence[str], find: Callable[[str], Flag], stop_at_word: bool = False
) -> tuple[list[tuple[Flag, str]], list[str]]:
    """The flags with the text of their values, and the other words; `find` knows the flags, and refuses unknown ones.

    With `stop_at_word`, everything from the first word that is no flag belongs to the other words.

    >>> split(["mine.toml", "--seed", "-1", "--quiet"], lambda name: Flag(name, kind=bool if "q" in name else int))[1]
    ['mine.toml']
    """
    flags: list[tuple[Flag, str]] = []
    others: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if not is_flag(word):
            others.append(word)
            if stop_at_word:
                return flags, others + waiting
            continue
        name, equals, text = word.partition("=")
        flag = find(name)
        if not equals:
            follows = bool(waiting) and (
                waiting[0].lower() in _TRUTH if flag.kind is bool else not is_flag(waiting[0])
            )
            if not follows and flag.kind is not bool:
                raise ConfigError(f"{name} needs a value")
            text = waiting.pop(0) if follows else "true"
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
