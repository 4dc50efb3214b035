"""Remarks, the points of a verdict, and the words that they share."""

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.compare.comparison import ComparedRun
from shoal.report.findings import Verdict


@dataclass(frozen=True)
class Remark:
    """One point of a verdict: a word, the claim, the numbers it rests on, and what to try next, if anything."""

    tone: Verdict
    """holds: as it should be; fails: something costs time; undecided: the numbers do not say."""
    word: str
    claim: str
    numbers: str
    advice: str = ""


def listed(entries: Sequence[ComparedRun]) -> str:
    """The names of runs as one phrase.

    >>> listed([])
    ''
    """
    *names, last = [entry.name for entry in entries] or [""]
    return f"{', '.join(names)} and {last}" if names else last


def thread_count(entry: ComparedRun) -> str:
    """The threads of a run's workers, in words."""
    threads = entry.threads
    return "all cores" if threads is None else f"{threads} thread{'s' * (threads > 1)}"


def percent(part: float) -> str:
    """A part as a percentage.

    >>> percent(0.256)
    '26 %'
    """
    return f"{100 * part:.0f} %"


def size_in_words(count: float) -> str:
    """A number of bytes with its unit.

    >>> size_in_words(207_600), size_in_words(40)
    ('207.6 kB', '40 B')
    """
    unit, size = next((each for each in (("MB", 1e6), ("kB", 1e3)) if count >= each[1]), ("B", 1))
    return f"{count / size:.{0 if size == 1 else 1}f} {unit}"
