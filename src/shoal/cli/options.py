"""A command's own options, taken out of its words; what is left belongs to the grammar of the configuration."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from shoal.errors import ConfigError


@dataclass(frozen=True)
class Options:
    """The options that were given."""

    values: dict[str, str | None] = field(default_factory=dict[str, "str | None"])

    def has(self, *names: str) -> bool:
        """Whether one of these was given."""
        return any(name in self.values for name in names)

    def value(self, name: str) -> str | None:
        """The value given with this option, or none."""
        return self.values.get(name)


def split_options(
    words: Sequence[str], switches: Sequence[str] = (), values: Sequence[str] = ()
) -> tuple[Options, list[str]]:
    """The command's own options, and the other words in their order.

    >>> options, rest = split_options(["quickstart", "--json", "--resume=runs/a"], ["--json"], ["--resume"])
    >>> options.has("--json"), options.value("--resume"), rest
    (True, 'runs/a', ['quickstart'])
    >>> split_options(["--seed", "-1"], values=["--seed"])[0].value("--seed")
    '-1'
    """
    found: dict[str, str | None] = {}
    rest: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, equals, value = word.partition("=")
        if word in switches:
            found[word] = None
        elif name in values:
            if not equals and (not waiting or _is_flag(waiting[0])):
                raise ConfigError(f"{name} needs a value")
            found[name] = value if equals else waiting.pop(0)
        else:
            rest.append(word)
    return Options(found), rest


def _is_flag(word: str) -> bool:
    """Whether a word is a flag; "-" stands for standard output, and -1 is a number."""
    return len(word) > 1 and word.startswith("-") and not word[1].isdigit()


def no_more(words: Sequence[str], usage: str) -> None:
    """Refuse words that no option took."""
    if words:
        raise ConfigError(f"'{words[0]}' is not understood here", f"Usage: {usage}")
