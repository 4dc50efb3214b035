"""Whether the runs of a comparison are equal: after one step from the same state, and to the bit at the end.

A free-running difference in float32 is reported for one process with another number of threads, and never judged.
"""

from collections.abc import Iterator, Sequence

from shoal.compare.comparison import (
    FAILED,
    INVARIANT_FOLDER,
    INVARIANT_STEPS,
    ComparedRun,
    Comparison,
    differ_only_in,
    other_settings,
    same_bits,
)
from shoal.compare.remark import Remark, listed, names_of, remark, settings_in_words, thread_count
from shoal.compare.weight_difference import FIRST_STEP_BOUND
from shoal.config.sections.exchange import compressions
from shoal.config.write import flat
from shoal.strategies.local.settings import LocalConfig
from shoal.strategies.server.settings import ServerConfig
from shoal.words import Words

BOUND = f"{FIRST_STEP_BOUND:.0e}"


def equals_one_machine(entry: ComparedRun, comparison: Comparison) -> str | None:
    """Whether a run equals one machine, as a key of `equals` in the words; None if it is unknown.

    same_bits: at the end of training; rounding: after one step; other keys: what makes it another computation.
    """
    reference = comparison.reference
    if reference is None:
        return None
    if entry is reference:
        return "reference"
    if entry.sha256 == reference.sha256:
        return "same_bits"
    if _is_lossy(entry):
        return "compressed"
    reasons = _choices_apart(entry, reference)
    if reasons:
        return next(iter(reasons))
    if _settings_apart(entry, reference):
        return "settings"
    if entry.first_step is None:
        return None
    return "rounding" if entry.first_step <= FIRST_STEP_BOUND else "unexplained"


def first_step(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """Whether every run equals one process after one step from the same state.

    Compression changes that step, and averaged weights differ from the second one on: they have remarks of their own.
    """
    reference = comparison.reference
    lossy = [entry for entry in comparison.entries if _is_lossy(entry)]
    compared = [
        (entry.first_step, entry)
        for entry in comparison.entries
        if entry is not reference and entry.first_step is not None and entry not in lossy
        if entry.first_step > FIRST_STEP_BOUND or not _averages_apart(entry)
    ]
    if reference is None or not compared:
        return
    above = [(difference, entry) for difference, entry in compared if difference > FIRST_STEP_BOUND]
    for difference, entry in above:
        claim = words("differs.claim", name=entry.name, reference=reference.name)
        numbers = words("differs.numbers", difference=difference, bound=BOUND)
        reasons = words("join.clause").join(other_work(entry, reference, words))
        advice = words("differs.expected", reasons=reasons) if reasons else words("differs.unexpected")
        yield remark(words, "fails", "differs", claim, numbers, advice)
    if not above:
        largest, far = max(compared, key=lambda each: each[0])
        names = names_of([entry for _, entry in compared], words)
        is_all = len(compared) + len(lossy) + 1 == len(comparison.entries)
        which = "some" if not is_all else "uncompressed" if lossy else "claim"
        claim = words(f"equal.{which}", names=names, reference=reference.name)
        numbers = words("equal.numbers", difference=largest, name=far.name, bound=BOUND)
        yield remark(words, "holds", "equal", claim, numbers)


def averages(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """Which runs average weights, and so train by another algorithm than one machine's."""
    for entry in comparison.several():
        if not (every := _averages_apart(entry)):
            continue
        why = words("averages.every", every=every)
        if every == 1:
            why = words("averages.not_linear", optimizer=entry.config.optimizer.name)
        claim = words("averages.claim", name=entry.name)
        yield remark(words, "holds", "averages", claim, why + _against(comparison.reference, entry, words))


def _averages_apart(entry: ComparedRun) -> int:
    """After how many steps a run averages weights, if that gives other weights than one machine's; else 0."""
    sync = entry.config.sync
    is_linear = entry.config.optimizer.name in ("gd", "sgd")
    return sync.every if isinstance(sync, LocalConfig) and (sync.every > 1 or not is_linear) else 0


def compressed(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """Which runs send codes of their gradients, and so do not equal one machine."""
    for entry in comparison.several():
        if not _is_lossy(entry):
            continue
        codecs = list(dict.fromkeys(each.codec for each in compressions(entry.config.exchange)))
        claim = words("compressed.claim", name=entry.name, codecs=listed(codecs, words))
        apart = ""
        if entry.first_step is not None:
            apart = words("compressed.numbers", difference=entry.first_step)
        numbers = (apart + _against(comparison.reference, entry, words)).strip()
        yield remark(words, "holds", "compressed", claim, numbers)


def _is_lossy(entry: ComparedRun) -> bool:
    return not all(each.is_neutral for each in compressions(entry.config.exchange))


def _against(reference: ComparedRun | None, entry: ComparedRun, words: Words) -> str:
    """The accuracy of a run beside the reference's, after another sentence; nothing where one is missing."""
    if entry.accuracy is None or reference is None or reference.accuracy is None:
        return ""
    accuracies = {"accuracy": 100 * entry.accuracy, "reference": 100 * reference.accuracy}
    return words("accuracy.against", name=reference.name, **accuracies)


def bits(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """Which runs end with identical weights. Free-running differences are not judged: see `threads`."""
    groups = same_bits(comparison)
    for group in groups:
        claim = words("same_bits.claim", names=names_of(group, words))
        yield remark(words, "holds", "same_bits", claim, _accuracies(group, words))
    if not groups:
        numbers = _accuracies(comparison.entries, words)
        yield remark(words, "undecided", "bits", words("same_bits.none"), numbers)
    alone = [
        each
        for each in comparison.several()
        if each.config.train.balance and not any(each in group for group in groups)
    ]
    if alone:
        one = "_one" * (len(alone) == 1)
        claim = words(f"same_bits.balanced{one}", names=names_of(alone, words))
        yield remark(words, "holds", "balance", claim, words("same_bits.balanced_numbers"))


def invariant_bits(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """Whether the runs that made invariant steps have the bits of one process."""
    reference = comparison.invariant
    made = [each for each in comparison.several() if each.invariant is not None]
    if reference is None or not made:
        return
    other = [entry for entry in made if entry.invariant != reference.invariant]
    same = [entry for entry in made if entry not in other]
    for entry in other:
        what = "failed" if entry.invariant == FAILED else "other"
        claim = words(f"invariant.{what}", name=entry.name)
        advice = words(f"invariant.{what}_advice", folder=entry.run.folder.path / INVARIANT_FOLDER)
        numbers = words("invariant.numbers", reference=reference.name)
        yield remark(words, "fails", "differs", claim, numbers, advice)
    if same:
        claim = words("invariant.same", names=names_of(same, words))
        numbers = words(
            "invariant.same_numbers", steps=INVARIANT_STEPS, sha256=(reference.invariant or "")[:8]
        )
        yield remark(words, "holds", "identical", claim, numbers)


def threads(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """What another number of threads does to one process."""
    reference = comparison.reference
    for entry in comparison.entries:
        if reference is None or entry.config.strategy != "single" or not entry.difference:
            continue
        if entry.threads == reference.threads or not differ_only_in(entry, reference, "threads"):
            continue
        after_one = words("threads.small")
        if entry.first_step is not None:
            after_one = words("threads.differ", difference=entry.first_step)
        counts = {
            "threads": thread_count(entry.threads, words),
            "others": thread_count(reference.threads, words),
        }
        numbers = words("threads.numbers", difference=after_one, final=entry.difference)
        yield remark(words, "holds", "threads", words("threads.claim", **counts), numbers)


def other_work(entry: ComparedRun, reference: ComparedRun, words: Words) -> list[str]:
    """The settings of a run that make it compute something else than one process; none: the work is the same."""
    return [
        *(words(f"differs.{key}", name=name) for key, name in _choices_apart(entry, reference).items()),
        *settings_in_words(_settings_apart(entry, reference), words),
    ]


def _choices_apart(entry: ComparedRun, reference: ComparedRun) -> dict[str, object]:
    """What makes a run another computation than one process, though it is the same task; each with its name."""
    config, sync, settings = entry.config, entry.config.sync, flat(entry.config)
    updates_inside = config.pipeline.updates_inside and config.axes.get("pipeline", 1) > 1
    aggregates = config.exchange.name not in ("all_reduce", "by", "compressed") or _is_lossy(entry)
    reasons = {
        "partition": (config.partition.name, config.partition != reference.config.partition),
        "exchange": (config.exchange.name, aggregates),
        "precision": (config.precision, config.precision != reference.config.precision),
        "schedule": (config.pipeline.schedule, updates_inside),
        "every": (settings.get("sync.every"), bool(_averages_apart(entry))),
        "server": (settings.get("sync.mode"), isinstance(sync, ServerConfig) and not sync.repeats),
    }
    return {key: name for key, (name, applies) in reasons.items() if applies}


def _settings_apart(entry: ComparedRun, reference: ComparedRun) -> dict[str, tuple[object, object]]:
    others = other_settings(entry, reference)
    return {path: values for path, values in others.items() if path != "precision"}


def _accuracies(entries: Sequence[ComparedRun], words: Words) -> str:
    """The lowest and the highest accuracy on the test set; nothing where none is known."""
    found = sorted(100 * entry.accuracy for entry in entries if entry.accuracy is not None)
    values = list(dict.fromkeys(f"{accuracy:.2f}" for accuracy in found[:1] + found[-1:]))
    if not values:
        return ""
    both = values[0] if len(values) == 1 else words("join.to", first=values[0], last=values[1])
    return words("accuracy.all", values=both)
