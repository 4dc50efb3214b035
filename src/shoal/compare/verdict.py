"""What a comparison shows, in plain words: what is slow, why, what to try next, and whether the results are equal.

The numbers alone decide. Times are judged only where the machine was not busy with other work.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product, zip_longest

from shoal.compare.causes import MATTERS
from shoal.compare.comparison import (
    ComparedRun,
    Comparison,
    differ_only_in,
    is_faster,
    settings_apart,
    speed_up,
)
from shoal.compare.equality import (
    averages,
    bits,
    compressed,
    first_step,
    invariant_bits,
    other_work,
    threads,
)
from shoal.compare.remark import Remark, names_of, percent, remark, size_in_words, thread_count
from shoal.compare.why_slow import (
    for_encoding,
    larger_batch,
    loading,
    memory,
    moving,
    stalling,
    synchronising,
    unused,
    waiting,
)  # fmt: skip
from shoal.report.findings import Verdict
from shoal.strategies.pipeline.schedules import FORMULAS
from shoal.strategies.pipeline.timing import UNIT_TIMES
from shoal.words import Words

Pair = tuple[ComparedRun, ComparedRun]


def verdict(comparison: Comparison, words: Words) -> list[Remark]:
    """All remarks, the most useful first.

    Times that are not comparable and results that are not equal come before everything else. Then the rules take turns,
    in their order: the first remark of each, then the second of each, and so on.
    """
    comparable = _without_delayed(comparison)
    no_times = list(impossible(comparable, words))
    found = [
        list(rule(comparable if rule in TIME_RULES else comparison, words))
        for rule in RULES
        if not (no_times and rule in TIME_RULES)
    ]
    ordered = [each for turn in zip_longest(*found) for each in turn if each]
    wrong = [each for each in ordered if each.kind == "differs"]
    return [*busy(comparison, words), *no_times, *wrong, *(each for each in ordered if each not in wrong)]


def busy(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """Runs that had to share the cores with other programs."""
    delayed = [entry for entry in comparison.entries if entry.was_delayed and not entry.is_crowded]
    if not delayed:
        return
    claim = words("busy.all")
    if len(delayed) < len(comparison.entries):
        claim = words("busy.some", names=names_of(delayed, words))
    most = max(delayed, key=lambda entry: entry.not_scheduled or 0.0)
    numbers = words("busy.numbers", name=most.name, percent=percent(most.not_scheduled or 0))
    yield remark(words, "undecided", "busy", claim, numbers, words("busy.advice"))


def impossible(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """A speed-up above the number of cores: something else slowed one process down."""
    reference = comparison.one_process
    above = [each for each in comparison.several() if reference and not _is_possible(each, reference)]
    if reference and above:
        best = min(above, key=lambda entry: entry.sample_s.value)
        numbers = words(
            "impossible.numbers",
            name=best.name,
            ratio=speed_up(best, reference),
            reference=_one_process(reference, words),
            cores=best.cores(),
        )
        claim, advice = words("impossible.claim"), words("impossible.advice")
        yield remark(words, "undecided", "busy", claim, numbers, advice)


def speed(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """Compare the fastest runs of several workers with one process, on all cores if there is such a run.

    The fastest that does the work of one process has a remark, and so has a faster one that does other work.
    """
    reference, several = comparison.one_process, comparison.several()
    if reference is None or not several:
        return
    several = sorted(several, key=lambda entry: entry.sample_s.value)
    same = [entry for entry in several if not other_work(entry, reference, words)]
    fastest = several[0]
    for entry in [fastest] if fastest in same or not same else [same[0], fastest]:
        yield _against_one_process(entry, entry is fastest, reference, comparison.one_core, words)


def _against_one_process(
    entry: ComparedRun, is_fastest: bool, reference: ComparedRun, one_core: ComparedRun | None, words: Words
) -> Remark:
    one_process = _one_process(reference, words)
    claim, ratio, judged = _speeds(entry, reference, one_process, words)
    numbers = words("speed.best", name=entry.name, ratio=ratio)
    if judged == "fails" and is_fastest:
        claim = words("speed.none_as_fast", reference=one_process)
    if one_core and one_core is not reference and _is_possible(entry, one_core):
        numbers += words("speed.one_core", ratio=speed_up(entry, one_core))
    if reasons := other_work(entry, reference, words):
        numbers += words("speed.other_work", reasons=words("join.clause").join(reasons))
    elif entry.cores() and entry.cores() == reference.cores():
        numbers += words("speed.same_cores", cores=entry.cores())
        # Threads share each operation and synchronise after it; workers share the batch and synchronise once a step.
        numbers += words("speed.better") if judged == "holds" else ""
    elif (cores := entry.cores()) and (others := reference.cores()) and cores > others:
        numbers += words("speed.more_cores", cores=cores, others=others, ideal=cores / others)
    advice = larger_batch(entry, words) if judged == "fails" else ""
    return remark(words, judged, _KINDS[judged], claim, numbers + words("speed.end"), advice)


def encoding(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """Runs whose codec takes time."""
    for entry in comparison.several():
        if entry.shares["encode"] < MATTERS:
            continue
        shares = {kind: percent(entry.shares[kind]) for kind in ("encode", "move")}
        numbers = words("encodes.numbers", **shares)
        claim = words("encodes.claim", name=entry.name)
        yield remark(words, "fails", "encodes", claim, numbers, for_encoding(entry, words))


def balance(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """Runs that differ in --balance alone."""
    for plain, balanced in _pairs(comparison, "train.balance", False, True):
        waits = {"before": percent(plain.shares["wait"]), "after": percent(balanced.shares["wait"])}
        yield _pair(balanced, plain, words("balance.change", **waits), words)


def group(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """Runs that differ in the group alone."""
    for gloo, shm in _pairs(comparison, "launch.group", "gloo", "shm"):
        moves = {"before": percent(gloo.shares["move"]), "after": percent(shm.shares["move"])}
        yield _pair(shm, gloo, words("group.change", **moves), words)


def nothing_slow(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """No run waits, moves or encodes much."""
    several = comparison.several()
    if several and all(
        max(entry.shares[kind] for kind in ("wait", "move", "encode")) < MATTERS for entry in several
    ):
        least = min(several, key=lambda entry: entry.shares["compute"])
        numbers = words("efficient.numbers", name=least.name, percent=percent(least.shares["compute"]))
        yield remark(words, "holds", "efficient", words("efficient.claim"), numbers)


def _without_delayed(comparison: Comparison) -> Comparison:
    """The runs whose times are comparable."""

    def kept(entry: ComparedRun | None) -> ComparedRun | None:
        return None if entry is None or entry.was_delayed else entry

    return replace(
        comparison,
        entries=tuple(entry for entry in comparison.entries if not entry.was_delayed),
        all_cores=kept(comparison.all_cores),
        one_core=kept(comparison.one_core),
    )


def _pairs(comparison: Comparison, path: str, before: object, after: object) -> Iterator[Pair]:
    """Runs that differ in one setting alone: the first has one value, the second the other."""
    for first, second in product(comparison.several(), repeat=2):
        changed = settings_apart(first.config, second.config).get(path)
        if changed == (before, after) and differ_only_in(first, second, path):
            yield first, second


def _pair(after: ComparedRun, before: ComparedRun, change: str, words: Words) -> Remark:
    claim, ratio, judged = _speeds(after, before, words("speed.run", name=before.name), words)
    return remark(words, judged, _KINDS[judged], claim, words("speed.pair", ratio=ratio, change=change))


def _speeds(entry: ComparedRun, reference: ComparedRun, named: str, words: Words) -> tuple[str, str, Verdict]:
    """A claim about the speed of two runs, its numbers and its verdict."""
    judged, ratio = is_faster(entry, reference), speed_up(entry, reference)
    claim = words(f"speed.{_KINDS[judged]}", name=entry.name, reference=named)
    if judged != "undecided":
        return claim, words("speed.ratio", ratio=ratio), judged
    first, second = (percent(each.sample_s.spread / each.sample_s.value) for each in (entry, reference))
    return claim, words("speed.spread", ratio=ratio, first=first, second=second), judged


_KINDS: dict[Verdict, str] = {"holds": "faster", "fails": "slower", "undecided": "undecided"}


def _one_process(reference: ComparedRun, words: Words) -> str:
    return words("speed.one_process", threads=thread_count(reference.threads, words))


def _is_possible(entry: ComparedRun, reference: ComparedRun) -> bool:
    """Whether a run can be so much faster than one process: at most by the number of its cores."""
    cores = entry.cores() if entry.run.result["device"] == "cpu" else None
    return cores is None or (speed_up(entry, reference) or 0.0) <= cores


def divided_models(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """One remark for each run that divides the model."""
    for entry in comparison.several():
        axes = entry.config.axes
        if entry.config.strategy == "rpc":
            yield _rpc(entry, words)
        elif axes.get("pipeline", 1) > 1:
            if entry.config.pipeline.schedule in FORMULAS:  # nothing is published of a user's own
                yield _pipeline(entry, axes["pipeline"], words)
        elif axes.get("tensor", 1) > 1:
            yield _tensor(entry, words)


def _pipeline(entry: ComparedRun, stages: int, words: Words) -> Remark:
    """The bubble that the schedule has by its formula, beside the time that stages really wait."""
    config = entry.config.pipeline
    formula, m = FORMULAS[config.schedule], config.microbatches
    work = [rank.work_s.value for rank in entry.ranks]
    numbers = words(
        "bubble.numbers",
        wait=percent(entry.shares["wait"]),
        schedule=config.schedule,
        microbatches=m,
        stages=stages,
        formula=formula.bubble,
        bubble=percent(formula.bubble_of(stages, m, UNIT_TIMES)),
        longest=words("bubble.longest", ratio=max(work) / min(work)) if all(work) else "",
        sent=_sent(entry, words),
    )
    advice = words("bubble.advice", microbatches=2 * m, schedule=config.schedule)
    return remark(words, "fails", "bubble", words("bubble.claim", name=entry.name), numbers, advice)


def _tensor(entry: ComparedRun, words: Words) -> Remark:
    """What the workers exchange inside the layers."""
    calls = round(sum(operation.calls for operation in entry.ranks[0].operations))
    numbers = words(
        "tensor.numbers",
        calls=words.counted("call", calls),
        percent=percent(entry.shares["move"] + entry.shares["wait"]),
        sent=_sent(entry, words),
    )
    claim = words("tensor.claim", name=entry.name)
    return remark(words, "fails", "moves", claim, numbers, words("tensor.advice"))


def _rpc(entry: ComparedRun, words: Words) -> Remark:
    """Without micro-batches only one stage computes at a time."""
    numbers = words("rpc.numbers", percent=percent(entry.shares["compute"]), sent=_sent(entry, words))
    claim = words("rpc.claim", name=entry.name)
    return remark(words, "fails", "waits", claim, numbers, words("rpc.advice"))


def _sent(entry: ComparedRun, words: Words) -> str:
    if entry.sent_bytes is None:
        return ""
    return words("bubble.sent", size=size_in_words(entry.sent_bytes / entry.run.result["steps"]))


RULES: tuple[Callable[[Comparison, Words], Iterator[Remark]], ...] = (
    speed, first_step, waiting, loading, stalling, balance, divided_models, encoding, moving, synchronising, group,
    averages, compressed, invariant_bits, bits, threads, unused, memory, nothing_slow,
)  # fmt: skip
"""The most useful first."""
TIME_RULES = frozenset({
    speed, waiting, loading, stalling, balance, divided_models, encoding, moving, synchronising, group, nothing_slow,
})  # fmt: skip
"""They judge only times that other work on the machine did not disturb."""
