"""What one run shows by itself: which worker is slow, where the time of a step goes, and what to change.

The rules are in `verdict.py`. A comparison sets a run's numbers beside other runs; here they stand alone, so a part of
the time counts only where the 99.9 % interval of its median over the steps is on one side of MATTERS. A short run and a
part that scatters across that bound give no remark.
"""

from collections.abc import Callable, Iterator
from statistics import fmean

from shoal.compare.comparison import ComparedRun, Comparison
from shoal.compare.remark import Remark, percent, remark
from shoal.compare.verdict import (
    MATTERS,
    divided_models,
    divides_model,
    encoding,
    is_slow,
    loading,
    moving,
    slow_and_quick,
    waiting,
)
from shoal.report.communication import StepKind
from shoal.report.findings import Measured, Verdict, exactly, higher
from shoal.report.paired import outside_interval, typical
from shoal.words import Words

Rule = Callable[[Comparison, Words], Iterator[Remark]]


def findings(run: Comparison, words: Words) -> list[Remark]:
    """What a run with several workers shows, the most useful first; on a busy machine only that it was busy.

    The events of all workers are needed: if one worker's are missing, waiting for it would count as moving.
    """
    (entry,) = run.entries
    steps = min(rank.steps for rank in entry.ranks)
    if entry.workers == 1 or len(entry.ranks) < entry.workers or not outside_interval(steps):
        return []
    if entry.was_delayed:
        claim = words("run.busy", percent=percent(entry.not_scheduled or 0.0))
        return [remark(words, "undecided", "busy", claim, words("one_run.busy"), words("one_run.idle"))]
    found = [each for rule, is_supported in RULES if is_supported(entry) for each in rule(run, words)]
    return found or [*_exchanges(entry, words), *_efficient(entry, words)]


def part(entry: ComparedRun, kind: StepKind) -> Measured:
    """A part of a step, the mean over the workers: its median over the steps, and the interval of that."""
    workers = [rank.parts.get(kind, {}) for rank in entry.ranks]
    common = sorted(set(workers[0]).intersection(*workers[1:]))
    if not common:
        return Measured(0.0, 0.0, "none", 0)
    return typical([fmean(steps[step] for steps in workers) for step in common])


def _matters(entry: ComparedRun, kind: StepKind) -> Verdict:
    return higher(part(entry, kind), exactly(MATTERS))


def _is_waiting(entry: ComparedRun) -> bool:
    """A slow worker is known from every step, waiting in turns only from those that kept their spans."""
    kind: StepKind = "exchange" if is_slow(*slow_and_quick(entry)) else "wait"
    return _matters(entry, kind) == "holds"


def _exchanges(entry: ComparedRun, words: Words) -> Iterator[Remark]:
    """Exchanges take time, and too few steps kept their spans to tell waiting from moving."""
    if _matters(entry, "exchange") == "holds" and not divides_model(entry):
        kept = sum(rank.steps_kept for rank in entry.ranks[:1])
        numbers = words(
            "one_run.exchanges_numbers", percent=percent(part(entry, "exchange").value), kept=kept
        )
        claim, advice = words("moves.claim", name=entry.name), words("one_run.trace")
        yield remark(words, "fails", "moves", claim, numbers, advice)


def _efficient(entry: ComparedRun, words: Words) -> Iterator[Remark]:
    """Waiting, moving and encoding together take little."""
    if _matters(entry, "communication") == "fails":
        shares = {kind: percent(entry.shares[kind]) for kind in ("compute", "wait", "move")}
        numbers = words("one_run.efficient_numbers", **shares)
        yield remark(words, "holds", "efficient", words("one_run.efficient"), numbers)


RULES: tuple[tuple[Rule, Callable[[ComparedRun], bool]], ...] = (
    (loading, lambda entry: _matters(entry, "data") == "holds"),
    (waiting, _is_waiting),
    (divided_models, lambda entry: _matters(entry, "exchange") == "holds"),
    (encoding, lambda entry: _matters(entry, "encode") == "holds"),
    (moving, lambda entry: _matters(entry, "move") == "holds"),
)
"""The rules of a comparison that need one run, and whether its steps support what they say."""
