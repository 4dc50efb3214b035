"""Writes a translated ds_config as a recipe: the settings, and as comments what is not among them."""

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from shoal.config.deepspeed.keys import Topic
from shoal.config.deepspeed.translate import Translation
from shoal.config.read import Tree
from shoal.config.write import literal

HEADINGS: Mapping[Topic, str] = {
    "open": "Left open, for you to set",
    "nearest": "Translated to the nearest thing",
    "missing": "Not translated",
    "needless": "No setting needed",
}
WIDTH = 100


def as_recipe(translation: Translation, source: str) -> str:
    """The TOML text of a recipe that `shoal train` takes as it is."""
    about = [
        f"# Translated from {source} by `shoal config from-deepspeed`.",
        "# A ds_config names neither data nor model: add [data] and [model], or pass --data and --model.",
    ]
    remarks = [f"# {line}".rstrip() for line in remark_lines(translation)]
    return "\n".join([*about, "", *_settings(translation.tree), *([""] if remarks else []), *remarks, ""])


def remark_lines(translation: Translation, width: int = WIDTH) -> list[str]:
    """What the user has to know about the keys that are not in the recipe, in lines of text."""
    lines: list[str] = []
    for topic, heading in HEADINGS.items():
        if of_topic := translation.remarks.of_topic[topic]:
            lines += [*([""] if lines else []), f"{heading}:"]
            for keys, sentence in _grouped(of_topic):
                lines += textwrap.wrap(
                    f"{keys}: {sentence}", width, initial_indent="  ", subsequent_indent="      "
                )
    return lines


def _grouped(remarks: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Keys of one table with the same remark, together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for key, sentence in remarks.items():
        table, _, name = key.rpartition(".")
        groups.setdefault((table, sentence), []).append(name)
    for (table, sentence), names in groups.items():
        path = f"{table}." if table else ""
        yield path + (names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"), sentence


def _settings(tree: Tree) -> list[str]:
    lines = [_line(name, value) for name, value in tree.items() if not isinstance(value, dict)]
    for name, section in tree.items():
        if isinstance(section, dict):
            values: dict[str, Any] = section
            lines += [*([""] if lines else []), f"[{name}]", *(_line(key, values[key]) for key in values)]
    return lines


def _line(name: str, value: object) -> str:
    return f"{name} = {literal(value)}"
