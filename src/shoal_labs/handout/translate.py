"""A hand-out's docstrings, comments and printed lines in Chinese."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources


def in_chinese(source: str, more: Mapping[str, str]) -> str:
    """The same program with the texts of `zh.toml` and of `more` replaced; longer texts first."""
    texts = {**translations(), **more}
    for english in sorted(texts, key=len, reverse=True):
        source = source.replace(english, texts[english])
    return source


@cache
def translations() -> dict[str, str]:
    """The Chinese of every text of a hand-out."""
    return tomllib.loads((resources.files("shoal_labs.handout") / "zh.toml").read_text(encoding="utf-8"))
