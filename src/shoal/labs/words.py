"""The words of a lab, one TOML file per language: `words/en.toml`, `words/zh.toml`, with the same keys in each.

What every lab says (headings, verdicts, the machine) stands once, in `labs/words`; a lab's own file comes after it.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from shoal.errors import ConfigError, unknown

LANGUAGES = ("en", "zh")
SHARED = "shoal.labs"
"""The package whose words all labs share."""


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


def load_words(package: str, lang: str, *more: str) -> Words:
    """The words of a lab's package in a language; those of further packages replace them."""
    if lang not in LANGUAGES:
        raise ConfigError(unknown("language", lang, LANGUAGES))
    sentences = dict[str, str]()
    for each in (SHARED, package, *more):
        sentences |= _sentences(each, lang)
    return Words(lang, sentences)


def _sentences(package: str, lang: str) -> dict[str, str]:
    text = (resources.files(package) / "words" / f"{lang}.toml").read_text(encoding="utf-8")
    return dict(_flat(tomllib.loads(text), ""))


def _flat(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, str):
            yield f"{prefix}{key}", value.strip("\n")
        else:
            yield from _flat(value, f"{prefix}{key}.")
