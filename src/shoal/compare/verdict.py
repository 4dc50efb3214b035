"""What a comparison shows, in plain words: what is slow, why, what to try next, and whether the results are equal.

The numbers alone decide. Times are judged only where the machine was not busy with other work.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

from shoal.compare.comparison import (
    BUSY,
    ComparedRun,
    Comparison,
    is_faster,
    settings_apart,
    speed_up,
)
from shoal.compare.divided_models import divided_models, divides_model
from shoal.compare.equality import equality
from shoal.compare.remark import Remark, listed, percent, size_in_words, thread_count
from shoal.report.communication import RankShares
from shoal.report.findings import SPREADS, Verdict, higher

Pair = tuple[ComparedRun, ComparedRun]

MATTERS = 0.10
"""The part of the training time from which waiting or moving gets a remark."""
SLOWER = 1.2
"""A worker is slow if its own work takes this many times as long as another's."""

THRESHOLDS = (
    f"Waiting and moving are mentioned from {100 * MATTERS:.0f} % of the training time on. A worker is slow if its own "
    f"work takes {SLOWER:g} times as long as that of the fastest, and the difference exceeds the spread of both. One "
    f"run is faster than another if their median steps differ by more than {SPREADS:g} times the spread of both; this "
    "spread does not include the variation from run to run. The machine was busy if a thread of a run was ready but "
    f"not scheduled for more than {100 * BUSY:.0f} % of the training time; such a run is repeated once if time allows."
)


def verdict(comparison: Comparison) -> list[Remark]:
    """All remarks: what the times show, as far as they are comparable, and then whether the results are equal."""
    comparable = _without_delayed(comparison)
    times = list(impossible(comparable)) or [remark for rule in TIME_RULES for remark in rule(comparable)]
    return [*busy(comparison), *times, *equality(comparison)]


def busy(comparison: Comparison) -> Iterator[Remark]:
    """Runs that had to share the cores with other programs."""
    delayed = [entry for entry in comparison.entries if entry.was_delayed]
    if not delayed:
        return
    claim = "The machine was busy: times are not comparable."
    if len(delayed) < len(comparison.entries):
        claim = f"The machine was busy: the times of {listed(delayed)} are not comparable."
    most = max(delayed, key=lambda entry: entry.not_scheduled or 0.0)
    numbers = (
        f"{most.name} was ready to run but not scheduled for {percent(most.not_scheduled or 0)} of its time."
    )
    advice = "Close other programs, use no more workers than cores, and run the comparison again."
    yield Remark("undecided", "busy", claim, numbers, advice)


def impossible(comparison: Comparison) -> Iterator[Remark]:
    """A speed-up above the number of cores: something else slowed one process down."""
    reference = comparison.one_process
    above = [each for each in comparison.several() if reference and not _is_possible(each, reference)]
    if reference and above:
        best = min(above, key=lambda entry: entry.sample_s.value)
        numbers = (
            f"{best.name} seems {speed_up(best, reference):.2f} × as fast as one process with "
            f"{thread_count(reference)}, on {best.cores()} cores."
        )
        claim = "The times are not comparable: no run can gain more than the number of its cores."
        yield Remark("undecided", "busy", claim, numbers, "Run the comparison again on an idle machine.")


def speed(comparison: Comparison) -> Iterator[Remark]:
    """Compare the fastest run of several workers with one process, on all cores if there is such a run."""
    reference, several = comparison.one_process, comparison.several()
    if reference is None or not several:
        return
    best = min(several, key=lambda entry: entry.sample_s.value)
    one_process = f"one process with {thread_count(reference)}"
    claim, numbers, judged = _speeds(best, reference, one_process)
    numbers = f"{best.name} is {numbers}"
    if judged == "fails":
        claim = f"No run with several workers is as fast as {one_process}."
    one_core = comparison.one_core
    if one_core and one_core is not reference and _is_possible(best, one_core):
        numbers += f", and {speed_up(best, one_core):.2f} × as fast as one core"
    if best.cores() and best.cores() == reference.cores():
        numbers += f". Both use the same {best.cores()} cores, so 1 is the expected value"
        # Threads share each operation and synchronise after it; workers share the batch and synchronise once a step.
        numbers += "; more means that workers divide this model better than threads" * (judged == "holds")
    yield _judged(judged, claim, numbers, _larger_batch(best) if judged == "fails" else "")


def waiting(comparison: Comparison) -> Iterator[Remark]:
    """Runs whose workers wait for another one. Those that divide the model have remarks of their own."""
    # For a balanced run and its counterpart `balance` says more: it waits until its shares have settled.
    balanced = [after for _, after in _pairs(comparison, "train.balance", False, True)]
    in_turns: list[ComparedRun] = []
    for entry in comparison.several():
        if entry.shares["wait"] < MATTERS or divides_model(entry):
            continue
        slow, quick = max(entry.ranks, key=_work_s), min(entry.ranks, key=_work_s)
        ratio = _work_s(slow) / _work_s(quick) if _work_s(quick) else 1.0
        if ratio < SLOWER or higher(slow.work_s, quick.work_s) != "holds":
            in_turns += [entry] * (entry not in balanced)
            continue
        most = max(entry.ranks, key=lambda rank: rank.wait)
        numbers = (
            f"{percent(entry.shares['wait'])} of the workers' time, {percent(most.wait)} of rank {most.rank}'s. "
            f"Rank {slow.rank}'s own work takes {ratio:.1f} × as long as rank {quick.rank}'s."
        )
        claim = f"{entry.name}: rank {slow.rank} is slow, and the others wait for it."
        yield Remark("fails", "waits", claim, numbers, _for_slow(entry))
    if in_turns:
        names = ", ".join(entry.name for entry in in_turns)
        shares = ", ".join(percent(entry.shares["wait"]) for entry in in_turns)
        yield Remark(
            "fails",
            "waits",
            f"{names}: the workers wait for each other in turns.",
            f"{shares} of the workers' time, though all have about the same work.",
            "Use no more workers than free cores. Longer steps (a larger batch) outweigh short delays.",
        )


def moving(comparison: Comparison) -> Iterator[Remark]:
    """Runs whose workers wait for bytes to move."""
    for entry in comparison.several():
        if entry.shares["move"] < MATTERS or divides_model(entry):
            continue
        rank = max(entry.ranks, key=lambda rank: rank.move)
        calls = sum(operation.calls for operation in rank.operations)
        size = size_in_words(sum(operation.num_bytes for operation in rank.operations))
        numbers = f"{percent(entry.shares['move'])} of the workers' time"
        numbers += (
            f", for {calls:.0f} call{'s' * (round(calls) > 1)} and {size} in every step" if calls else ""
        )
        yield Remark(
            "fails", "moves", f"{entry.name}: exchanges take time.", f"{numbers}.", _for_moving(entry)
        )


def balance(comparison: Comparison) -> Iterator[Remark]:
    """Runs that differ in --balance alone."""
    for plain, balanced in _pairs(comparison, "train.balance", False, True):
        change = f"waiting goes from {percent(plain.shares['wait'])} to {percent(balanced.shares['wait'])}"
        yield _pair(balanced, plain, f"{change}, including the steps before its shares settled")


def group(comparison: Comparison) -> Iterator[Remark]:
    """Runs that differ in the group alone."""
    for gloo, shm in _pairs(comparison, "launch.group", "gloo", "shm"):
        before, after = percent(gloo.shares["move"]), percent(shm.shares["move"])
        yield _pair(shm, gloo, f"exchanges take {before} of the time on gloo, {after} in shared memory")


def nothing_slow(comparison: Comparison) -> Iterator[Remark]:
    """No run waits or moves much."""
    several = comparison.several()
    if several and all(max(entry.shares["wait"], entry.shares["move"]) < MATTERS for entry in several):
        least = min(several, key=lambda entry: entry.shares["compute"])
        numbers = (
            f"The least busy, {least.name}, computes for {percent(least.shares['compute'])} of its time."
        )
        yield Remark(
            "holds", "efficient", "Communication costs little: no run waits or moves for long.", numbers
        )


TIME_RULES: tuple[Callable[[Comparison], Iterator[Remark]], ...] = (
    speed, waiting, balance, moving, group, divided_models, nothing_slow,
)  # fmt: skip


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
        apart = settings_apart(first.config, second.config)
        for setting in [each for each in apart if each.startswith(("output.", "checkpoint."))]:
            del apart[setting]
        if apart == {path: (before, after)}:
            yield first, second


def _pair(after: ComparedRun, before: ComparedRun, change: str) -> Remark:
    claim, numbers, judged = _speeds(after, before, before.name)
    return _judged(judged, claim, f"{numbers}: {change}")


def _speeds(entry: ComparedRun, reference: ComparedRun, named: str) -> tuple[str, str, Verdict]:
    """A claim about the speed of two runs, its numbers and its verdict."""
    judged, numbers = is_faster(entry, reference), f"{speed_up(entry, reference):.2f} × as fast"
    if judged != "undecided":
        return f"{entry.name} is {_WORDS[judged]} than {named}.", numbers, judged
    spreads = [percent(each.sample_s.spread / each.sample_s.value) for each in (entry, reference)]
    claim = f"{entry.name} and {named} do not differ significantly."
    return claim, f"{numbers} (spread of the steps: ± {' and ± '.join(spreads)})", judged


def _judged(judged: Verdict, claim: str, numbers: str, advice: str = "") -> Remark:
    return Remark(judged, _WORDS[judged], claim, f"{numbers}.", advice)


_WORDS: dict[Verdict, str] = {"holds": "faster", "fails": "slower", "undecided": "undecided"}


def _is_possible(entry: ComparedRun, reference: ComparedRun) -> bool:
    """Whether a run can be so much faster than one process: at most by the number of its cores."""
    cores = entry.cores() if entry.run.result["device"] == "cpu" else None
    return cores is None or (speed_up(entry, reference) or 0.0) <= cores


def _work_s(rank: RankShares) -> float:
    return rank.work_s.value


def _for_slow(entry: ComparedRun) -> str:
    if entry.config.strategy == "dp":
        return (
            "In dp rank 0 alone computes the loss and the update. Try --strategy ddp, where all do the same."
        )
    if entry.config.train.balance:
        return (
            "Its share is already smaller; the rest of its work does not depend on the share. Try without it."
        )
    return "Try --balance: the slow worker gets fewer samples of every batch."


def _for_moving(entry: ComparedRun) -> str:
    if entry.config.launch.group == "gloo" and not entry.config.launch.link:
        return "If all workers are on one machine, try --group shm."
    if entry.config.exchange.name != "all_reduce":
        return "Try it without --exchange, with the group's own all-reduce."
    if entry.config.strategy == "naive":
        return "Try --strategy ddp: one bucket instead of a call for every parameter."
    if entry.config.strategy == "dp":
        return "All data pass through rank 0. Try --strategy ddp, where every worker reads its own."
    return _larger_batch(entry)


def _larger_batch(entry: ComparedRun) -> str:
    size = entry.config.train.batch_size
    known = isinstance(size, int)
    return f"Try a larger batch: --batch-size {4 * size} exchanges a quarter as often." if known else ""
