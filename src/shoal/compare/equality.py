"""Whether the runs of a comparison are equal: after one step from the same state, and to the bit at the end.

A free-running difference in float32 is reported for one process with another number of threads, and never judged.
"""

from collections.abc import Iterator, Sequence

from shoal.compare.comparison import ComparedRun, Comparison, same_bits
from shoal.compare.invariant_bits import FAILED, FOLDER, STEPS
from shoal.compare.remark import Remark, listed, thread_count
from shoal.compare.weights import FIRST_STEP_BOUND
from shoal.config.schema import LocalConfig, ServerConfig
from shoal.config.sections.exchange import compressions

EQUALITY = (
    "The reference for equality is one process with the workers' number of threads. After one step from the same state "
    "two correct runs differ by rounding alone: max|a − b| / max|b| of each tensor of the optimizer's first moment, "
    f"which is the gradient (without one, of the weights), is at most {FIRST_STEP_BOUND:.0e}. Later differences are "
    "no measure of equality: a rounding flips a ReLU, and training amplifies it."
)


def equality(comparison: Comparison) -> Iterator[Remark]:
    """All remarks on equality."""
    yield from first_step(comparison)
    yield from averages(comparison)
    yield from compressed(comparison)
    yield from bits(comparison)
    yield from invariant_bits(comparison)
    yield from threads(comparison)


def first_step(comparison: Comparison) -> Iterator[Remark]:
    """Whether every run equals one process after one step from the same state; compression changes that step."""
    reference = comparison.reference
    lossy = [entry for entry in comparison.entries if _is_lossy(entry)]
    compared = [
        entry
        for entry in comparison.entries
        if entry is not reference and entry.first_step is not None and entry not in lossy
    ]
    if reference is None or not compared:
        return
    above = [entry for entry in compared if _first_step(entry) > FIRST_STEP_BOUND]
    for entry in above:
        yield Remark(
            "fails",
            "differs",
            f"{entry.name} does not equal {reference.name} after one step from the same state.",
            f"The difference is {_first_step(entry):.1e}; rounding explains at most {FIRST_STEP_BOUND:.0e}.",
            _for_different(entry),
        )
    if not above:
        far = max(compared, key=_first_step)
        yield Remark(
            "holds",
            "equal",
            f"Every run{' without compression' * bool(lossy)} equals {reference.name} after one step from the same "
            "state.",
            f"The largest difference is {_first_step(far):.1e} ({far.name}); rounding explains at most "
            f"{FIRST_STEP_BOUND:.0e}.",
        )


def averages(comparison: Comparison) -> Iterator[Remark]:
    """Which runs average weights, and so train by another algorithm than one machine's."""
    reference = comparison.reference
    for entry in comparison.several():
        sync, optimizer = entry.config.sync, entry.config.optimizer.name
        if not isinstance(sync, LocalConfig) or (sync.every == 1 and optimizer in ("gd", "sgd")):
            continue
        claim = f"{entry.name} is another algorithm than one machine's: only its first gradient is the same."
        why = (
            f"Its workers update alone, and average their weights every {sync.every} steps."
            if sync.every > 1
            else f"Its workers average weights, and {optimizer}'s update is not linear in the gradient."
        )
        yield Remark("holds", "averages", claim, why + _against(reference, entry))


def compressed(comparison: Comparison) -> Iterator[Remark]:
    """Which runs send codes of their gradients, and so do not equal one machine."""
    reference = comparison.reference
    for entry in comparison.several():
        if not _is_lossy(entry):
            continue
        codecs = " and ".join(dict.fromkeys(each.codec for each in compressions(entry.config.exchange)))
        claim = f"{entry.name} does not equal one machine: it sends its gradients as {codecs}."
        apart = ""
        if entry.first_step is not None:
            apart = (
                f"After one step the difference is {_first_step(entry):.1e}, as the codec rounds or drops."
            )
        yield Remark("holds", "compressed", claim, apart + _against(reference, entry))


def _is_lossy(entry: ComparedRun) -> bool:
    return not all(each.is_neutral for each in compressions(entry.config.exchange))


def _against(reference: ComparedRun | None, entry: ComparedRun) -> str:
    """The accuracy of a run beside the reference's, after another sentence; nothing where one is missing."""
    if entry.accuracy is None or reference is None or reference.accuracy is None:
        return ""
    theirs = f"({reference.name}: {100 * reference.accuracy:.2f} %)"
    return f" Test accuracy: {100 * entry.accuracy:.2f} % {theirs}."


def bits(comparison: Comparison) -> Iterator[Remark]:
    """Which runs end with identical weights. Free-running differences are not judged: see `threads`."""
    accuracies = _accuracies(comparison.entries)
    groups = same_bits(comparison)
    for group in groups:
        yield Remark("holds", "same bits", f"{listed(group)} end with identical weights.", accuracies)
        accuracies = ""
    if not groups:
        yield Remark("undecided", "bits", "No two runs end with identical weights.", accuracies)
    alone = [each for each in comparison.several() if each.config.train.balance and not _is_in(each, groups)]
    if alone:
        claim = f"{listed(alone)} {'ends' if len(alone) == 1 else 'end'} with other bits."
        reason = (
            "The shares follow the measured speeds, so the samples of a batch are summed in another order."
        )
        yield Remark("holds", "balance", claim, reason)


def invariant_bits(comparison: Comparison) -> Iterator[Remark]:
    """Whether the runs that made invariant steps have the bits of one process."""
    reference = comparison.invariant
    made = [each for each in comparison.several() if each.invariant is not None]
    if reference is None or not made:
        return
    other = [entry for entry in made if entry.invariant != reference.invariant]
    same = [entry for entry in made if entry not in other]
    for entry in other:
        what = "failed" if entry.invariant == FAILED else "end with other bits"
        yield Remark(
            "fails",
            "differs",
            f"{entry.name}: its steps with --reduction invariant {what}.",
            f"They should have the bits of {reference.name}.",
            f"{entry.run.folder.path / FOLDER} has its events." if what == "failed" else "That is a bug.",
        )
    if same:
        yield Remark(
            "holds",
            "identical",
            f"{listed(same)}: the bits of one process with --reduction invariant.",
            f"After {STEPS} steps the sha256 of all weights is {(reference.invariant or '')[:8]}…: sums along one tree "
            "of micro-batches do not depend on the number of workers.",
        )


def threads(comparison: Comparison) -> Iterator[Remark]:
    """What another number of threads does to one process."""
    reference = comparison.reference
    for entry in comparison.entries:
        if reference is None or entry.config.strategy != "single" or not entry.difference:
            continue
        if entry.threads == reference.threads:
            continue
        claim = f"One process ends with other bits with {thread_count(entry)} than with {thread_count(reference)}."
        after_one = (
            f"they differ by {entry.first_step:.1e}" if entry.first_step is not None else "it is small"
        )
        numbers = (
            f"After one step {after_one}. Then a rounding flips a ReLU, and training amplifies it: at the end the "
            f"weights differ by {entry.difference:.1e}. That number does not measure correctness."
        )
        yield Remark("holds", "threads", claim, numbers)


def _first_step(entry: ComparedRun) -> float:
    return entry.first_step or 0.0


def _is_in(entry: ComparedRun, groups: Sequence[Sequence[ComparedRun]]) -> bool:
    return any(entry in group for group in groups)


def _for_different(entry: ComparedRun) -> str:
    config = entry.config
    schedule = config.pipeline.schedule
    updates_inside = config.pipeline.updates_inside and config.axes.get("pipeline", 1) > 1
    reasons = {
        f"--partition {config.partition.name} takes other batches": config.partition.name != "global",
        f"--exchange {config.exchange.name} gives another aggregate": config.exchange.name
        not in ("all_reduce", "by"),
        f"--precision {config.precision} rounds more coarsely": config.precision != "float32",
        f"--pipeline.schedule {schedule} updates after every micro-batch": updates_inside,
    }
    if isinstance(config.sync, ServerConfig) and not config.sync.gathers:
        reasons[f"--strategy.mode {config.sync.mode} applies gradients of older weights"] = True
    found = [reason for reason, applies in reasons.items() if applies]
    return (
        f"Expected: {', '.join(found)}."
        if found
        else "Batch normalisation and dropout do this, and so does a bug."
    )


def _accuracies(entries: Sequence[ComparedRun]) -> str:
    """
    >>> _accuracies([])
    ''
    """
    found = sorted(100 * entry.accuracy for entry in entries if entry.accuracy is not None)
    values = list(dict.fromkeys(f"{accuracy:.2f}" for accuracy in found[:1] + found[-1:]))
    return f"Test accuracy: {' to '.join(values)} %." if values else ""
