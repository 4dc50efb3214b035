"""What a comparison says, in plain words: what is slow, why, and what to try next; decided by its numbers alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from shoal.compare.comparison import Comparison, Entry, has_same_bits, is_faster, settings_apart, speed_up
from shoal.report.communication import RankShares
from shoal.report.findings import SPREADS, Verdict, higher

MATTERS = 0.10
"""From this part of the training time on, waiting or moving is worth a sentence."""
SLOWER = 1.2
"""A worker whose own work takes this many times as long as another's is a slow one."""

THRESHOLDS = (
    f"Waiting or moving is named from {100 * MATTERS:.0f} % of the training time on; a worker is called slow when its "
    f"own work takes {SLOWER:g} times as long as that of the fastest, and that is more than both scatter. One run is "
    f"called faster than another when their median steps differ by more than {SPREADS:g} times the scatter of both; "
    "every variant ran once, so what changes from run to run is not in that scatter."
)


@dataclass(frozen=True)
class Remark:
    """One point of a verdict: a word, the claim, the numbers it rests on, and what to try next, if anything."""

    tone: Verdict
    """holds: as it should be; fails: something costs time; undecided: the numbers do not say."""
    word: str
    claim: str
    numbers: str
    advice: str = ""


def verdict(comparison: Comparison) -> list[Remark]:
    """Everything there is to say, the most important first."""
    return [remark for rule in RULES for remark in rule(comparison)]


def speed(comparison: Comparison) -> Iterator[Remark]:
    """The fastest of several workers against one process, with all cores if there is such a run."""
    reference, several = comparison.reference, comparison.several()
    if reference is None or not several:
        return
    best = min(several, key=lambda entry: entry.sample_s.value)
    judged = is_faster(best, reference)
    against = f"one process with {_threads(reference)}"
    claims = {
        "holds": f"{best.name} is faster than {against}.",
        "fails": f"No run with several workers is as fast as {against}.",
        "undecided": f"{best.name} and {against} are not told apart: within the spread of the steps.",
    }
    numbers = f"{best.name} is {speed_up(best, reference):.2f} × as fast{_scatter(judged, best, reference)}"
    if comparison.one_core and comparison.one_core is not reference:
        numbers += f", and {speed_up(best, comparison.one_core):.2f} × as fast as one core"
    if best.cores() and best.cores() == reference.cores():
        numbers += f". Both use the same {best.cores()} cores: 1 is to be expected"
        # Threads share out each operation and meet after it; workers share out the batch and meet once a step.
        numbers += ", more means that workers divide this model better than threads" * (judged == "holds")
    advice = _larger_batch(best) if judged == "fails" else ""
    yield Remark(judged, _WORDS[judged], claims[judged], f"{numbers}.", advice)


def waiting(comparison: Comparison) -> Iterator[Remark]:
    """Runs whose workers stand still until another one comes."""
    # Of a balanced run with its counterpart `balance` tells more: it waited until its shares had settled.
    balanced = [after for _, after in _pairs(comparison, "train.balance", False, True)]
    by_turns: list[Entry] = []
    for entry in comparison.several():
        if entry.shares["wait"] < MATTERS:
            continue
        slow, quick = max(entry.ranks, key=_work_s), min(entry.ranks, key=_work_s)
        ratio = _work_s(slow) / _work_s(quick) if _work_s(quick) else 1.0
        if ratio < SLOWER or higher(slow.work_s, quick.work_s) != "holds":
            if entry not in balanced:
                by_turns.append(entry)
            continue
        most = max(entry.ranks, key=lambda rank: rank.wait)
        claim = f"{entry.name}: rank {slow.rank} is slow, and the others wait for it."
        numbers = f"{_percent(entry.shares['wait'])} of the workers' time, "
        numbers += f"{_percent(most.wait)} of rank {most.rank}'s. "
        numbers += f"Rank {slow.rank}'s own work takes {ratio:.1f} × as long as rank {quick.rank}'s."
        yield Remark("fails", "waits", claim, numbers, _for_slow(entry))
    if by_turns:
        claim = f"{', '.join(entry.name for entry in by_turns)}: the workers wait for each other by turns."
        numbers = f"{', '.join(_percent(entry.shares['wait']) for entry in by_turns)} of the workers' time, "
        numbers += "though all have about the same work."
        advice = (
            "Is there a free core for every worker? Longer steps (a larger batch) make up for short delays."
        )
        yield Remark("fails", "waits", claim, numbers, advice)


def moving(comparison: Comparison) -> Iterator[Remark]:
    """Runs whose workers stand still while bytes move."""
    for entry in comparison.several():
        if entry.shares["move"] < MATTERS:
            continue
        rank = max(entry.ranks, key=lambda rank: rank.move)
        calls = sum(operation.calls for operation in rank.operations)
        size = sum(operation.num_bytes for operation in rank.operations)
        numbers = f"{_percent(entry.shares['move'])} of the workers' time"
        numbers += (
            f", for {calls:.0f} call{'s' * (calls > 1)} and {_bytes(size)} in every step" if calls else ""
        )
        claim = f"{entry.name}: exchanges take time."
        yield Remark("fails", "moves", claim, f"{numbers}.", _for_moving(entry))


def balance(comparison: Comparison) -> Iterator[Remark]:
    """Runs that differ in --balance alone."""
    for plain, balanced in _pairs(comparison, "train.balance", False, True):
        waits = f"waiting goes from {_percent(plain.shares['wait'])} to {_percent(balanced.shares['wait'])}"
        waits += ", the steps before its shares had settled included"
        yield _pair_remark(balanced, plain, waits)


def group(comparison: Comparison) -> Iterator[Remark]:
    """Runs that differ in the group alone."""
    for gloo, shm in _pairs(comparison, "launch.group", "gloo", "shm"):
        before, after = _percent(gloo.shares["move"]), _percent(shm.shares["move"])
        moves = f"exchanges take {before} of the time on gloo, {after} in shared memory"
        yield _pair_remark(shm, gloo, moves)


def nothing_slow(comparison: Comparison) -> Iterator[Remark]:
    """Nobody waits or moves much."""
    several = comparison.several()
    if several and all(max(entry.shares["wait"], entry.shares["move"]) < MATTERS for entry in several):
        least = min(several, key=lambda entry: entry.shares["compute"])
        claim = "Communication costs little: no run waits or moves for long."
        numbers = (
            f"The least busy, {least.name}, computes for {_percent(least.shares['compute'])} of its time."
        )
        yield Remark("holds", "busy", claim, numbers)


def truth(comparison: Comparison) -> Iterator[Remark]:
    """How far all ended from one machine. Reported, never judged: rounding alone can flip a ReLU."""
    reference = comparison.reference
    others = [
        entry for entry in comparison.entries if entry is not reference and entry.difference is not None
    ]
    if reference is None or not others:
        return
    alike = sum(has_same_bits(entry, reference) for entry in others)
    if alike == len(others):
        claim = f"All ended with the same bits as {reference.name}."
        yield Remark("holds", "result", claim, _accuracies([reference, *others]))
        return
    far = max(others, key=lambda entry: entry.difference or 0.0)
    claim = f"The final weights differ from {reference.name}'s by at most {far.difference:.1e} ({far.name})."
    numbers = f"{alike} of {len(others)} have the same bits. " if alike else ""
    twin = comparison.one_core
    if twin is not None and twin is not reference and twin.difference:
        numbers += (
            f"One process differs from itself by {twin.difference:.1e} with another number of threads. "
        )
    yield Remark("holds", "result", claim, numbers + _accuracies([reference, *others]))


RULES: tuple[Callable[[Comparison], Iterator[Remark]], ...] = (
    speed,
    waiting,
    balance,
    moving,
    group,
    nothing_slow,
    truth,
)


def _pairs(comparison: Comparison, path: str, before: object, after: object) -> Iterator[tuple[Entry, Entry]]:
    """Runs that differ in one setting alone: the first has it one way, the second the other."""
    for first in comparison.several():
        for second in comparison.several():
            apart = {
                key: values
                for key, values in settings_apart(first.config, second.config).items()
                if not key.startswith(("output.", "checkpoint."))
            }
            if apart == {path: (before, after)}:
                yield first, second


def _pair_remark(after: Entry, before: Entry, numbers: str) -> Remark:
    judged = is_faster(after, before)
    claims = {
        "holds": f"{after.name} is faster than {before.name}.",
        "fails": f"{after.name} is slower than {before.name}.",
        "undecided": f"{after.name} and {before.name} are not told apart: within the spread of the steps.",
    }
    ratio = f"{speed_up(after, before):.2f} × as fast{_scatter(judged, after, before)}"
    return Remark(judged, _WORDS[judged], claims[judged], f"{ratio}: {numbers}.")


def _scatter(judged: Verdict, *entries: Entry) -> str:
    """How much steps scatter, where that keeps them from being told apart."""
    widths = [_percent(entry.sample_s.spread / entry.sample_s.value) for entry in entries]
    return f" (steps scatter by ± {' and ± '.join(widths)})" if judged == "undecided" else ""


_WORDS: dict[Verdict, str] = {"holds": "faster", "fails": "slower", "undecided": "undecided"}


def _work_s(rank: RankShares) -> float:
    return rank.work_s.value


def _accuracies(entries: Sequence[Entry]) -> str:
    """
    >>> _accuracies([])
    ''
    """
    found = sorted(100 * entry.accuracy for entry in entries if entry.accuracy is not None)
    if not found:
        return ""
    low, high = f"{found[0]:.2f}", f"{found[-1]:.2f}"
    return f"Test accuracy: {low} %." if low == high else f"Test accuracy: {low} to {high} %."


def _for_slow(entry: Entry) -> str:
    if entry.config.strategy == "dp":
        return (
            "In dp rank 0 alone computes the loss and the update. Try --strategy ddp, where all do the same."
        )
    if entry.config.train.balance:
        return "Its share is smaller already; what is left is the same for every share. Is that worker needed at all?"
    return "Try --balance: the slow worker gets fewer samples of every batch."


def _for_moving(entry: Entry) -> str:
    if entry.config.launch.group == "gloo" and not entry.config.launch.link:
        return "If all workers are on one machine, try --group shm."
    if entry.config.exchange.name != "all_reduce":
        return "Try it without --exchange: the group's own all-reduce."
    if entry.config.strategy == "naive":
        return "Try --strategy ddp: one bucket instead of a call for every parameter."
    if entry.config.strategy == "dp":
        return "All data pass through rank 0. Try --strategy ddp, where every worker reads its own."
    return _larger_batch(entry)


def _larger_batch(entry: Entry) -> str:
    size = entry.config.train.batch_size
    return (
        f"Try a larger batch: --batch-size {4 * size} exchanges a quarter as often."
        if isinstance(size, int)
        else ""
    )


def _threads(entry: Entry) -> str:
    threads = entry.config.threads
    return "all cores" if threads is None else f"{threads} thread{'s' * (threads > 1)}"


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"


def _bytes(count: float) -> str:
    for unit, size in (("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"
