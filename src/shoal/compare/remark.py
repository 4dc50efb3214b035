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


def thread_count(entry: ComparedRun, words: Words) -> str:
    """The threads of a run's workers, in words."""
    return words("count.all_cores") if entry.threads is None else words.counted("thread", entry.threads)


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
    unfinished = [
        words("notes.unfinished", folder=folder, command=command)
        for folder, command in comparison.unfinished.items()
    ]
    return [*unfinished, *_on_entries(comparison, words)]


def _on_entries(comparison: Comparison, words: Words) -> Iterator[str]:
    entries, reference, all_cores = comparison.entries, comparison.reference, comparison.all_cores
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
        elif all_cores and _compares_other_cores(entry, all_cores):
            threads = {"threads": _cores(entry, words), "others": _cores(all_cores, words)}
            yield words("notes.cores", name=entry.name, first=all_cores.name, **threads)
        if reference and entry.workers > 1 and entry.threads != reference.threads:
            threads = {
                "threads": _number(entry.threads, words),
                "others": _number(reference.threads, words),
            }
            yield words("notes.threads", **names, **threads)


def _compares_other_cores(entry: ComparedRun, all_cores: ComparedRun) -> bool:
    """Whether a run has other cores than one process, though not because each worker has as many as that process."""
    return entry.workers > 1 and entry.cores() != all_cores.cores() and entry.threads != all_cores.threads


def _cores(entry: ComparedRun, words: Words) -> str:
    cores = entry.cores()
    return _number(cores, words) if cores is None else words("count.in_all", threads=_number(cores, words))


def _number(threads: int | None, words: Words) -> str:
    return words("count.default_threads") if threads is None else words.counted("thread", threads)
