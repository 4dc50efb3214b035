"""Sentences by key, in a TOML file per language and package: `words/en.toml` and `words/zh.toml` have the same keys."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from shoal.errors import ConfigError, unknown

LANGUAGES = ("en", "zh")


@dataclass(frozen=True)
class Words:
    """Sentences by key; a sentence's {places} are filled with the values given.

    >>> Words("en", {"hello": "{count} fish"})("hello", count=3)
    '3 fish'
    """

    lang: str
    sentences: Mapping[str, str]

    def __call__(self, key: str, /, **values: Any) -> str:
        """The sentence of a key."""
        return self.sentences[key].format(**values)

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


def _sentences(package: str, lang: str) -> dict[str, str]:
    text = (resources.files(package) / "words" / f"{lang}.toml").read_text(encoding="utf-8")
    return dict(_flat(tomllib.loads(text), ""))


def _flat(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, str):
            yield f"{prefix}{key}", value.strip("\n")
        else:
            yield from _flat(value, f"{prefix}{key}.")
