"""Task regions: one source is both our solution and the student's skeleton, so that the two cannot drift apart.

A region of the solution stands between two comments, indented as the code is:

    # task: gd_step
    param.sub_(lr * param.grad)
    # end: gd_step

`cut` puts a comment with the task's sentence and a NotImplementedError in its place; `keep` removes only the two
comments. Neither keeps comments for our linters (`# ruff: …`, `# noqa: …`, `# pyright: …`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from shoal.kit.page import width

COLUMNS = 100
_REGION = re.compile(r"^( *)# task: (\w+)\n(.*?)^ *# end: \2\n", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r" *# (task|end): \w+$")
_FOR_LINTERS = re.compile(r"\s*# (ruff|noqa|pyright): ?.*$")


@dataclass(frozen=True)
class Region:
    """A task, and the lines of the solution that solve it."""

    name: str
    indent: str
    lines: tuple[str, ...]


def without_linter_marks(source: str) -> str:
    """Source for readers: without the comments that speak to linters.

    >>> without_linter_marks("# ruff: noqa\\nimport os  # noqa: F401\\n")
    'import os\\n'
    """
    lines = [(line, _FOR_LINTERS.sub("", line)) for line in source.splitlines()]
    return "\n".join(shown for line, shown in lines if shown or not line) + "\n"


def parts(source: str) -> list[str | Region]:
    """The lines outside regions, and the regions, in their order."""
    texts = _REGION.split(without_linter_marks(source))
    lines = [line for text in (*texts[::4], *texts[3::4]) for line in text.splitlines()]
    for stray in filter(_MARK.match, lines):
        raise ValueError(f"'{stray.strip()}' neither begins nor ends a region")
    found: list[str | Region] = [*texts[0].splitlines()]
    for indent, name, body, after in zip(texts[1::4], texts[2::4], texts[3::4], texts[4::4], strict=True):
        found += [Region(name, indent, tuple(body.splitlines())), *after.splitlines()]
    return found


def tasks(source: str) -> list[str]:
    """Names of the tasks, in their order."""
    return [part.name for part in parts(source) if isinstance(part, Region)]


def keep(source: str) -> str:
    """The solution without the marks."""
    lines = [line for part in parts(source) for line in (part.lines if isinstance(part, Region) else (part,))]
    return "\n".join(lines) + "\n"


def cut(source: str, sentences: Mapping[str, str], task: str = "Task {name}: {sentence}") -> str:
    """The skeleton: every region replaced by its sentence, in the form of `task`.

    >>> source = "def f(x):\\n    # task: double\\n    return 2 * x\\n    # end: double"
    >>> print(cut(source, {"double": "Return 2·x."}), end="")
    def f(x):
        # Task double: Return 2·x.
        raise NotImplementedError("Task double: see README.md")
    """
    lines: list[str] = []
    for part in parts(source):
        if isinstance(part, Region):
            comment = task.format(name=part.name, sentence=sentences[part.name])
            error = task.format(name=part.name, sentence="see README.md")
            lines += [*_comment(comment, part.indent), f'{part.indent}raise NotImplementedError("{error}")']
        else:
            lines.append(part)
    return "\n".join(lines) + "\n"


def _comment(text: str, indent: str) -> list[str]:
    """The text as comment lines; a line may end after any Chinese letter."""
    lines = [""]
    for word in re.findall(r"[\u3000-\uffef]\s*|[^\u3000-\uffef\s]+\s*", text):
        if width(f"{indent}# {lines[-1]}{word.rstrip()}") > COLUMNS and word[0] not in "，。；：、）":
            lines.append("")
        lines[-1] += word
    return [f"{indent}# {line.rstrip()}" for line in lines]
