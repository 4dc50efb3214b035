"""The checksum line of a file of settings: damage is found before a setting is used."""

import hashlib
import re
from pathlib import Path

from shoal.errors import ConfigError

_LINE = "# Written by shoal. sha256 of the lines below: "


def sealed(text: str) -> str:
    """The text below a comment with its checksum.

    >>> sealed("seed = 1\\n").splitlines()[1]
    'seed = 1'
    """
    return f"{_LINE}{_sha256(text)}\n{text}"


def check_seal(text: str, source: Path) -> None:
    """Refuse text that differs from what was sealed; text without a checksum, as earlier versions wrote it, passes.

    >>> check_seal(sealed("seed = 1").replace("1", "3"), Path("config.toml"))
    Traceback (most recent call last):
        ...
    shoal.errors.ConfigError: config.toml is damaged or was edited: its sha256 does not match its first line
      If you edited it on purpose, delete its first line.
    """
    found = re.match(re.escape(_LINE) + "(.*)\n", text)
    if found and found[1] != _sha256(text[found.end() :]):
        raise ConfigError(
            f"{source} is damaged or was edited: its sha256 does not match its first line",
            "If you edited it on purpose, delete its first line.",
        )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
