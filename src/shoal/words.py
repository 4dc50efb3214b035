"""Sentences by key, in a TOML file per language and package: `words/en.toml` and `words/zh.toml` have the same keys."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, cast

from shoal.errors import ConfigError, unknown

LIST_COMMAS = {"en": ", ", "zh": "、"}
"""Between the things of a list, by language."""
LANGUAGES = tuple(LIST_COMMAS)


@dataclass(frozen=True)
class Phrase:
    """A part of a sentence with a key of its own: a name or a number that every language writes in its own way.

    As plain text, for files that have no language, it is its key after the first dot, or its values.

    >>> str(Phrase("fish.cod")), str(Phrase("weight", {"fish": Phrase("fish.cod"), "kg": 2}))
    ('cod', '(fish cod, kg 2)')
    """

    key: str
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        listed = ", ".join(f"{name} {value}" for name, value in self.values.items())
        return f"({listed})" if listed else self.key.partition(".")[2] or self.key


@dataclass(frozen=True)
class Words:
    """Sentences by key; a sentence's {places} are filled with the values given. A list or tuple is listed.

    >>> words = Words("en", {"hello": "{count} fish: {names}", "cod": "a cod"})
    >>> words("hello", count=2, names=(Phrase("cod"), "an eel"))
    '2 fish: a cod, an eel'
    """

    lang: str
    sentences: Mapping[str, str]

    def __call__(self, key: str, /, **values: Any) -> str:
        """The sentence of a key."""
        return self.sentences[key].format(**{name: self.shown(value) for name, value in values.items()})

    def shown(self, value: Any) -> Any:
        """A value in the language: a phrase as its sentence, a list with the language's commas."""
        if isinstance(value, Phrase):
            return self(value.key, **value.values)
        if isinstance(value, list | tuple):
            return self.listed(cast(Iterable[Any], value))
        return value

    def listed(self, values: Iterable[Any]) -> str:
        """Several things, with the comma of the language between them."""
        return LIST_COMMAS[self.lang].join(str(self.shown(each)) for each in values)

    def counted(self, noun: str, count: int) -> str:
        """A number of things, from `count.<noun>`, or from `count.one_<noun>` for a single one.

        >>> words = Words("en", {"count.one_fish": "a fish", "count.fish": "{count} fish"})
        >>> words.counted("fish", 1), words.counted("fish", 2)
        ('a fish', '2 fish')
        """
        return self(f"count.{'one_' * (count == 1)}{noun}", count=count)


def read_words(lang: str, *packages: str) -> Words:
    """The words of packages in a language; a later one replaces what an earlier one says."""
    if lang not in LANGUAGES:
        raise ConfigError(unknown("language", lang, LANGUAGES))
    return Words(lang, {key: text for package in packages for key, text in _sentences(package, lang).items()})


@cache
def _sentences(package: str, lang: str) -> dict[str, str]:
    text = (resources.files(package) / "words" / f"{lang}.toml").read_text(encoding="utf-8")
    return dict(_flat(tomllib.loads(text), ""))


def _flat(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, str):
            yield f"{prefix}{key}", value.strip("\n")
        else:
            yield from _flat(value, f"{prefix}{key}.")
