"""Notes to a comparison: what a reader must know before reading a number."""

from collections.abc import Iterator

from shoal.compare.comparison import ComparedRun, Comparison, other_settings
from shoal.compare.remark import settings_in_words
from shoal.words import Words


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
        elif all_cores and entry.workers > 1 and entry.cores() != all_cores.cores():
            threads = {"threads": _cores(entry, words), "others": _cores(all_cores, words)}
            yield words("notes.cores", name=entry.name, first=all_cores.name, **threads)
        if reference and entry.workers > 1 and entry.threads != reference.threads:
            threads = {
                "threads": _number(entry.threads, words),
                "others": _number(reference.threads, words),
            }
            yield words("notes.threads", **names, **threads)


def _cores(entry: ComparedRun, words: Words) -> str:
    cores = entry.cores()
    return _number(cores, words) if cores is None else words("count.in_all", threads=_number(cores, words))


def _number(threads: int | None, words: Words) -> str:
    return words("count.default_threads") if threads is None else words.counted("thread", threads)
