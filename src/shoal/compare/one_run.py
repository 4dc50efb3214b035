"""What one run shows by itself: which worker is slow, where the time of a step goes, and what to change.

The rules are in `why_slow.py` and `verdict.py`. A comparison sets a run's numbers beside other runs; here they stand
alone, so a cause counts only where the 99.9 % interval of its cost over the steps is above MATTERS. The cause that
costs the most comes first, then facts whose cost in time is unknown, then exchanges that take long without a reason.

On a busy machine times mean little. RunDelay measures for how long a thread was ready and got no core, so a cause is
still evident if it costs more than twice that and MATTERS: other programs cannot have taken so much. All smaller ones
give way to one remark, that the machine was busy.
"""

from collections.abc import Callable, Iterator

from shoal.compare.causes import MATTERS, cost_of, evaluating_alone, loading_cost, part, saving, slow_worker
from shoal.compare.causes import synchronising as synchronising_cost
from shoal.compare.comparison import ComparedRun, Comparison
from shoal.compare.remark import Remark, percent, remark
from shoal.compare.verdict import divided_models, encoding
from shoal.compare.why_slow import (
    divides_model,
    loading,
    memory,
    moving,
    stalling,
    synchronising,
    unused,
    waiting,
    why_moving,
)
from shoal.report.communication import StepKind
from shoal.report.findings import exactly, higher
from shoal.report.paired import outside_interval
from shoal.words import Words

Rule = Callable[[Comparison, Words], Iterator[Remark]]
MARGIN = 2.0
"""On a busy machine a cause has to cost this many times the delay, and MATTERS."""


def findings(run: Comparison, words: Words) -> list[Remark]:
    """What a run shows, the most useful first; on a busy machine only what is evident all the same.

    The events of all workers are needed: if one worker's are missing, waiting for it would count as moving.
    """
    (entry,) = run.entries
    steps = min(rank.steps for rank in entry.ranks)
    if len(entry.ranks) < entry.workers or not outside_interval(steps):
        return []
    facts = [each for rule in FACTS for each in rule(run, words)]
    delay = MARGIN * (entry.not_scheduled or 0.0) if entry.was_delayed else 0.0
    costs = {rule: cost(entry) for rule, cost in CAUSES.items()}
    evident = [rule for rule, cost in costs.items() if cost and cost >= delay + MATTERS * entry.was_delayed]
    evident.sort(key=lambda rule: -costs[rule])
    general = [rule for rule in evident if _is_general(rule, entry)]
    reasons = [each for rule in evident if rule not in general for each in rule(run, words)]
    others = [each for rule in general for each in rule(run, words)]
    if entry.was_delayed:
        found = [*reasons, *facts, *others]
        return [*found, _busy(entry, words)] if entry.workers > 1 or found else []
    if entry.workers > 1 and not (reasons or others):
        others = [*_exchanges(run, entry, words)]
    return [*reasons, *facts, *others] or [*_efficient(entry, words)]


def _is_general(rule: Rule, entry: ComparedRun) -> bool:
    """Whether a rule says only that time passes, and not why: what has a reason comes before it."""
    return (rule is moving and why_moving(entry) == "moves") or (
        rule is waiting and slow_worker(entry) is None
    )


def _busy(entry: ComparedRun, words: Words) -> Remark:
    claim = words("run.busy", percent=percent(entry.not_scheduled or 0.0))
    return remark(words, "undecided", "busy", claim, words("one_run.busy"), words("one_run.idle"))


def _slow_cost(entry: ComparedRun) -> float:
    """A slow worker is known from every step, waiting in turns only from those that kept their spans."""
    slow = slow_worker(entry)
    return slow.cost if slow else cost_of(part(entry, "wait"))


def _stall_cost(entry: ComparedRun) -> float:
    return max(each.cost if each else 0.0 for each in (evaluating_alone(entry), saving(entry)))


def _cost_of(kind: StepKind) -> Callable[[ComparedRun], float]:
    return lambda entry: cost_of(part(entry, kind))


def _exchanges(run: Comparison, entry: ComparedRun, words: Words) -> Iterator[Remark]:
    """Exchanges take time, and too few steps kept their spans to tell waiting from moving."""
    exchange = part(entry, "exchange")
    if not cost_of(exchange) or divides_model(entry.config):
        return
    if why_moving(entry) == "buckets":  # the number of calls and their bytes are exact
        yield from moving(run, words)
    else:
        kept = sum(rank.steps_kept for rank in entry.ranks[:1])
        numbers = words("one_run.exchanges_numbers", percent=percent(exchange.value), kept=kept)
        claim, advice = words("moves.claim", name=entry.name), words("one_run.trace")
        yield remark(words, "fails", "moves", claim, numbers, advice)


def _efficient(entry: ComparedRun, words: Words) -> Iterator[Remark]:
    """Waiting, moving and encoding together take little."""
    if entry.workers > 1 and higher(part(entry, "communication"), exactly(MATTERS)) == "fails":
        shares = {kind: percent(entry.shares[kind]) for kind in ("compute", "wait", "move")}
        numbers = words("one_run.efficient_numbers", **shares)
        yield remark(words, "holds", "efficient", words("one_run.efficient"), numbers)


CAUSES: dict[Rule, Callable[[ComparedRun], float]] = {
    waiting: _slow_cost,
    loading: loading_cost,
    stalling: _stall_cost,
    divided_models: _cost_of("exchange"),
    encoding: _cost_of("encode"),
    moving: _cost_of("move"),
    synchronising: lambda entry: synchronising_cost(entry)[1],
}
"""The rules of a comparison that need one run, and what each cause costs; of equal ones the first is the strongest."""
FACTS: tuple[Rule, ...] = (memory, unused)
"""What holds on a busy machine, too, and whose cost in time is unknown."""
