"""The tables of keys: no key twice, and docs/deepspeed.md shows keys and settings that exist."""

import re
from pathlib import Path

from shoal.config.deepspeed.keys import OFF, reason_of
from shoal.config.deepspeed.remarks import NOT_NEEDED, NOT_SUPPORTED
from shoal.config.deepspeed.translate import translate
from shoal.config.read import known_flags
from shoal.errors import ConfigError

PAGE = (Path(__file__).parents[3] / "docs/deepspeed.md").read_text(encoding="utf-8")
ROWS = [
    re.split(r"(?<!\\)\|", line)[1:3] for line in PAGE.splitlines() if line.startswith("| ") and "`" in line
]


def test_no_key_has_two_reasons():
    assert not NOT_NEEDED.keys() & NOT_SUPPORTED.keys()
    assert all(reason_of(key) == ("missing", NOT_SUPPORTED[key]) for key in OFF)


def is_known(path):
    """Whether the translation reads a key, or says why it does not."""
    first, _, rest = path.partition(".")
    content = {first: {rest: "auto"}} if rest else {first: "auto"}
    try:
        return "not a key that we know" not in str(translate(content).remarks.of_topic["missing"])
    except ConfigError as error:  # it is read, and "auto" is not a table
        return "expected a table" in error.message


def test_every_key_of_the_page_is_known():
    assert not is_known("zero_optimization.stages")
    for row in ROWS:
        keys = re.findall(r"`([a-z]\w*(?:\.\w+)*)`", row[0])
        # After the first key of a cell, the others are written without their table.
        table = keys[0].rpartition(".")[0] if keys else ""
        for key in keys:
            assert is_known(key) or is_known(f"{table}.{key}"), key


def test_every_setting_of_the_page_exists():
    flags = {flag.removeprefix("--").replace("sync.", "strategy.") for flag in known_flags()}
    settings = [found for row in ROWS for found in re.findall(r"`(?:--)?([a-z]+\.[a-z_0-9]+)", row[1])]
    assert len(settings) > 15
    assert set(settings) <= flags
