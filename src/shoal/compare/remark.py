"""Remarks, the points of a verdict; notes, which a reader needs before the numbers; and the phrases that they share."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shoal.compare.comparison import ComparedRun, Comparison, other_settings
from shoal.report.findings import Verdict
from shoal.words import Words


@dataclass(frozen=True)
class Remark:
    """One point of a verdict: a word, the claim, the numbers it rests on, and what to try next, if anything."""

    tone: Verdict
    """holds: as it should be; fails: something costs time; undecided: the numbers do not say."""
    kind: str
    """What it is about, for programs: the same in every language."""
    word: str
    claim: str
    numbers: str
    advice: str = ""


def remark(words: Words, tone: Verdict, kind: str, claim: str, numbers: str = "", advice: str = "") -> Remark:
    """A remark of a kind, with the word for it."""
    return Remark(tone, kind, words(f"word.{kind}"), claim, numbers, advice)


def listed(names: Sequence[str], words: Words) -> str:
    """Names as one phrase: a, b and c."""
    *first, last = names
    return words("join.and", first=first, last=last) if first else last


def names_of(entries: Sequence[ComparedRun], words: Words) -> str:
    """The names of runs as one phrase."""
    return listed([entry.name for entry in entries], words)


def settings_in_words(apart: Mapping[str, tuple[object, object]], words: Words) -> list[str]:
    """Settings in which a run differs from another, by path, with both values."""
    return [
        words("notes.other_setting", path=path, ours=ours, theirs=theirs)
        for path, (ours, theirs) in apart.items()
    ]


def thread_count(threads: int | None, words: Words, unknown: str = "all_cores") -> str:
    """A number of threads in words; `unknown` says what it is where nobody has chosen it."""
    return words(f"count.{unknown}") if threads is None else words.counted("thread", threads)


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


def notes(comparison: Comparison, words: Words) -> list[str]:
    """All notes: first on runs that did not finish."""
    return list(_notes(comparison, words))


def _notes(comparison: Comparison, words: Words) -> Iterator[str]:
    entries, reference, all_cores = comparison.entries, comparison.reference, comparison.all_cores
    for folder, command in comparison.unfinished.items():
        yield words("notes.unfinished", folder=folder, command=command)
    if reference is None:
        yield words("notes.no_single")
    first = reference or entries[0]
    for entry in entries:
        if not entry.is_checked:
            yield words("notes.unchecked", name=entry.name)
        if entry.sent_bytes is None:
            yield words("notes.old_bytes", name=entry.name)
        names = {"name": entry.name, "first": first.name}
        other = settings_in_words(other_settings(entry, first), words)
        if other:
            yield words("notes.other_task", **names, settings=words("join.clause").join(other))
        if reference and entry.difference is None:
            yield words("notes.weights", **names)
        devices = entry.run.result["device"], first.run.result["device"]
        if devices[0] != devices[1]:
            yield words("notes.devices", **names, device=devices[0], other=devices[1])
        # Other cores than one process has are no surprise where each worker has as many as that process.
        elif (
            all_cores
            and entry.workers > 1
            and entry.cores() != all_cores.cores()
            and entry.threads != all_cores.threads
        ):
            threads = {"threads": _cores(entry, words), "others": _cores(all_cores, words)}
            yield words("notes.cores", name=entry.name, first=all_cores.name, **threads)
        if reference and entry.workers > 1 and entry.threads != reference.threads:
            ours, theirs = (
                thread_count(each.threads, words, "default_threads") for each in (entry, reference)
            )
            yield words("notes.threads", **names, threads=ours, others=theirs)


def _cores(entry: ComparedRun, words: Words) -> str:
    cores = entry.cores()
    count = thread_count(cores, words, "default_threads")
    return count if cores is None else words("count.in_all", threads=count)
