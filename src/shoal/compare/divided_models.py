"""Remarks on runs whose workers divide the model: where the bubble is, what a step sends, what to try next."""

from collections.abc import Iterator

from shoal.compare.comparison import ComparedRun, Comparison
from shoal.compare.remark import Remark, percent, size_in_words
from shoal.parallel.layout.pipeline.formulas import FORMULAS
from shoal.parallel.layout.pipeline.timing import UNIT_TIMES


def divides_model(entry: ComparedRun) -> bool:
    """Whether the workers of a run divide the model among them."""
    return entry.config.strategy == "rpc" or any(axis != "data" for axis in entry.config.axes)


def divided_models(comparison: Comparison) -> Iterator[Remark]:
    """One remark for each run that divides the model."""
    for entry in comparison.several():
        axes = entry.config.axes
        if entry.config.strategy == "rpc":
            yield _rpc(entry)
        elif axes.get("pipeline", 1) > 1:
            yield _pipeline(entry, axes["pipeline"])
        elif axes.get("tensor", 1) > 1:
            yield _tensor(entry)


def _pipeline(entry: ComparedRun, stages: int) -> Remark:
    """The bubble that the schedule has by its formula, beside the time that stages really wait."""
    config = entry.config.pipeline
    formula, m = FORMULAS[config.schedule], config.microbatches
    bubble = formula.bubble_of(stages, m, UNIT_TIMES)
    work = [rank.work_s.value for rank in entry.ranks]
    numbers = (
        f"Stages wait {percent(entry.shares['wait'])} of the time. {config.schedule} with {m} micro-batches on "
        f"{stages} equal stages has a bubble of {formula.bubble} = {percent(bubble)}"
    )
    numbers += (
        f"; the longest stage computes {max(work) / min(work):.1f} × as long as the shortest. "
        if all(work)
        else ". "
    )
    advice = (
        f"Try --pipeline.microbatches {2 * m}: a smaller bubble. `shoal explain {config.schedule}` draws it."
    )
    claim = f"{entry.name}: stages wait for each other at the beginning and the end of a step."
    return Remark("fails", "bubble", claim, numbers + _sent(entry), advice)


def _tensor(entry: ComparedRun) -> Remark:
    """What the workers exchange inside the layers."""
    calls = sum(operation.calls for operation in entry.ranks[0].operations)
    numbers = (
        f"{calls:.0f} call{'s' * (round(calls) != 1)} in every step; moving and waiting take "
        f"{percent(entry.shares['move'] + entry.shares['wait'])} of the time. {_sent(entry)}"
    )
    claim = f"{entry.name}: the workers exchange activations in every divided layer."
    return Remark(
        "fails",
        "moves",
        claim,
        numbers,
        "Dividing layers pays where they are wide: try --model mlp --model.hidden 2048,2048.",
    )


def _rpc(entry: ComparedRun) -> Remark:
    """Without micro-batches only one stage computes at a time."""
    numbers = f"Workers compute {percent(entry.shares['compute'])} of the time. {_sent(entry)}"
    claim = f"{entry.name}: while one worker computes its layers, the others wait."
    advice = "Try --strategy.microbatches 4: stages overlap, as far as their layers take equally long."
    return Remark("fails", "waits", claim, numbers, advice)


def _sent(entry: ComparedRun) -> str:
    sent = entry.run.result["bytes_sent"] / entry.run.result["steps"]
    return f"Rank 0 sends {size_in_words(sent)} per step."
