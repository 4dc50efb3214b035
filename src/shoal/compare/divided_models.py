"""Remarks on runs whose workers divide the model: where the bubble is, what a step sends, what to try next."""

from collections.abc import Iterator

from shoal.compare.comparison import ComparedRun, Comparison
from shoal.compare.remark import Remark, percent, remark, size_in_words
from shoal.strategies.pipeline.schedules import FORMULAS
from shoal.strategies.pipeline.timing import UNIT_TIMES
from shoal.words import Words


def divides_model(entry: ComparedRun) -> bool:
    """Whether the workers of a run divide the model among them."""
    return entry.config.strategy == "rpc" or any(axis != "data" for axis in entry.config.axes)


def divided_models(comparison: Comparison, words: Words) -> Iterator[Remark]:
    """One remark for each run that divides the model."""
    for entry in comparison.several():
        axes = entry.config.axes
        if entry.config.strategy == "rpc":
            yield _rpc(entry, words)
        elif axes.get("pipeline", 1) > 1:
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
