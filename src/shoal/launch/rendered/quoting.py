"""Quotes a user's words for YAML and for a shell, and fills in templates."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from string import Template

from shoal.errors import ConfigError
from shoal.printable import printable

TEMPLATES = Path(__file__).with_name("templates")
_PLAIN = re.compile(r"(?:--?|\./)?[A-Za-z_/][\w./=-]*(?::[\w./=-]+)*", re.ASCII)
"""What YAML reads as text without quotes, but for the words below."""
_NOT_TEXT = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
"""What YAML 1.1 or 1.2 reads as a truth value or as nothing."""


def checked(words: Sequence[str]) -> list[str]:
    """The words, if every character can stand on a line of a file; line breaks and control characters are refused.

    >>> checked(["train.py", "--name=第一次"])
    ['train.py', '--name=第一次']
    """
    for word in words:
        wrong = next((character for character in word if not character.isprintable()), "")
        if wrong:
            raise ConfigError(
                f"'{printable(word)}' has the character U+{ord(wrong):04X}, which a rendered file cannot hold",
                "Leave out line breaks, and characters that cannot be seen.",
            )
    return list(words)


def yaml_word(word: str) -> str:
    """A word as YAML.

    >>> print(yaml_word("--lr=0.1"), yaml_word("no"), yaml_word("1"), yaml_word('say "hi"'), yaml_word("第一"))
    --lr=0.1 "no" "1" "say \\"hi\\"" "第一"
    """
    if _PLAIN.fullmatch(word) and word.lower() not in _NOT_TEXT:
        return word
    return json.dumps(word, ensure_ascii=False)


def yaml_list(words: Sequence[str]) -> str:
    """A command as YAML, in which compose and Kubernetes replace no variable: both read `$$` as `$`.

    >>> print(yaml_list(["python", "-u", "model.py", "--cost=$5"]))
    [python, -u, model.py, "--cost=$$5"]
    """
    return f"[{', '.join(yaml_word(word.replace('$', '$$')) for word in words)}]"


class _At(Template):
    """Placeholders begin with `@`: the files themselves have variables of a shell."""

    delimiter = "@"


def filled(template: str, **values: object) -> str:
    """A template with its placeholders replaced.

    A line that begins with `?name|` is kept if the value is true, and one with `!name|` if it is false.
    """
    text = (TEMPLATES / template).read_text("utf-8")
    kept: list[str] = []
    for line in text.splitlines():
        condition = re.match(r"([?!])(\w+)\|", line)
        if condition is None or bool(values[condition[2]]) == (condition[1] == "?"):
            kept.append(line[condition.end() :] if condition else line)
    return _At("\n".join(kept) + "\n").substitute(values)
