"""What the pages of all labs are written with: opening, headings, tables, figures, source code."""

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence

from shoal.kit.page import Block, Code, Paragraph, Table
from shoal_labs.handout.regions import without_linter_marks
from shoal_labs.runs import Runs
from shoal_labs.words import Words

PAGE_COLUMNS = 88
"""Characters of code that fit on a line of the page."""


def opening(command: str, runs: Runs, busy: float = 0.0) -> list[Block]:
    """Where the numbers come from, whose code it is, the command that made the page, and runs of earlier reports.

    `busy`: the part of the machine that other programs used; 0 if it was not busy.
    """
    words = runs.words
    return [
        Paragraph(words("intro.measured").strip()),
        Paragraph(words("intro.whose")),
        *([Paragraph(words("intro.busy", part=100 * busy))] if busy else []),
        Paragraph(words("intro.command")),
        Code(command, language="sh"),
        *taken_over(runs),
    ]


def taken_over(runs: Runs) -> list[Block]:
    """Which runs were taken over from an earlier report; nothing where --runs was not given."""
    words, taken, trained = runs.words, runs.taken_over, runs.trained
    if runs.earlier is None:
        return []
    counts = {"taken": len(taken), "trained": len(trained), "folder": runs.earlier}
    blocks: list[Block] = [
        Paragraph(words("intro.taken_over" if taken else "intro.none_taken_over", **counts))
    ]
    if taken:
        names = textwrap.fill(
            "  ".join(ranges(taken)), PAGE_COLUMNS, break_long_words=False, break_on_hyphens=False
        )
        blocks.append(Code(names, words("intro.taken_over_names"), "text"))
    return blocks


def ranges(names: Sequence[str]) -> list[str]:
    """Names that differ in their last number as one.

    >>> ranges(["timed-2w-round0", "single", "timed-2w-round1", "timed-2w-round2", "parts-2", "parts-8"])
    ['timed-2w-round0…2', 'single', 'parts-2,8']

    Digits after a point are no number of their own:

    >>> ranges(["sweep-0.1", "sweep-0.3"])
    ['sweep-0.1', 'sweep-0.3']
    """
    numbers: dict[str, list[str]] = {}
    for name in names:
        stem = name.rstrip("0123456789")
        stem = name if stem.endswith(".") else stem
        numbers.setdefault(stem, []).append(name.removeprefix(stem))
    return [stem + _as_range(each) for stem, each in numbers.items()]


def _as_range(numbers: Sequence[str]) -> str:
    first, last = numbers[0], numbers[-1]
    is_gapless = len(numbers) > 1 and numbers == [str(each) for each in range(int(first), int(last) + 1)]
    return f"{first}…{last}" if is_gapless else ",".join(numbers)


def machine_table(facts: Mapping[str, str], words: Words) -> Table:
    """The machine that a report was made on."""
    rows = [[words(f"machine.{key}"), value] for key, value in facts.items()]
    return Table(words("setup.machine"), [words("setup.item"), words("setup.value")], rows)


def folded(text: str) -> str:
    """Lines that fit on the page."""
    return "\n".join(textwrap.fill(line, PAGE_COLUMNS, subsequent_indent="  ") for line in text.splitlines())


def source(function: Callable[..., object] | type) -> str:
    """The code of a function, as it is in the installed package."""
    return without_linter_marks(textwrap.dedent(inspect.getsource(function)))
