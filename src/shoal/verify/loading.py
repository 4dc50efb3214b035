"""Judges how workers divide a data set, from the indices that their loaders drew."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from shoal.printable import counted
from shoal.verify.finding import Finding
from shoal.verify.store import Facts, Step

Division = Sequence[Sequence[Sequence[int]]]
"""The batches of each worker in one pass."""


class Pass(NamedTuple):
    """One pass over a loader by all workers."""

    number: int
    batches: Division
    samples: int
    is_whole: bool
    """Whether every worker came to its end."""
    drops: bool
    """Whether loaders leave out what does not fill a batch."""
    steps: Sequence[Sequence[int]]
    """The step of each batch."""


def passes(ranks: Sequence[Sequence[Step]]) -> dict[int, list[Pass]]:
    """All passes over the loaders that training used, by loader."""
    found: list[dict[tuple[int, int], list[tuple[int, Facts]]]] = []
    used: set[int] = set()
    for steps in ranks:
        mine: dict[tuple[int, int], list[tuple[int, Facts]]] = {}
        for number, step in enumerate(steps):
            facts = step.notes("batch")
            for each in facts:
                mine.setdefault((each["loader"], each["pass"]), []).append((number, each))
            if step.notes("forward") and facts:
                used |= {each["loader"] for each in facts if not each.get("end")}
        found.append(mine)
    result: dict[int, list[Pass]] = {}
    for loader, number in sorted(set(found[0]).intersection(*found[1:])):
        own = [mine[loader, number] for mine in found]
        if loader in used and "samples" in own[0][0][1]:
            result.setdefault(loader, []).append(_pass(number, own))
    return result


def _pass(number: int, own: Sequence[Sequence[tuple[int, Facts]]]) -> Pass:
    first: Mapping[str, Any] = own[0][0][1]
    drawn = [[(step, facts) for step, facts in mine if not facts.get("end")] for mine in own]
    batches = [[facts["indices"] for _, facts in mine] for mine in drawn]
    is_whole = all(
        any(facts.get("end") for _, facts in mine) or len(kept) >= first.get("length", 10**12)
        for mine, kept in zip(own, drawn, strict=True)
    )
    steps = [[step for step, _ in mine] for mine in drawn]
    return Pass(number, batches, first["samples"], is_whole, bool(first.get("whole_batches")), steps)


def judged(ranks: Sequence[Sequence[Step]]) -> Finding | None:
    """The first step in which samples are divided wrongly."""
    found = [finding for several in passes(ranks).values() for finding in _of_loader(several)]
    return min(found, key=lambda finding: finding.step, default=None)


def _of_loader(several: Sequence[Pass]) -> Iterator[Finding]:
    for each in several:
        if all(indices for mine in each.batches for indices in mine):
            yield from _repeated(each)
            yield from _missing(each)
            yield from _lengths(each)
    for before, after in pairwise(several):
        yield from _same_order(before, after)


def padding(ranks: Sequence[Sequence[Step]]) -> list[str]:
    """Loaders whose samplers draw some samples twice, so that all workers have as many."""
    found: list[str] = []
    for several in passes(ranks).values():
        first = several[0]
        drawn = [index for batches in first.batches for batch in batches for index in batch]
        extra = len(drawn) - len({*drawn})
        if 0 < extra <= -first.samples % len(first.batches):
            some = f"{counted(extra, 'sample')} of {first.samples} twice in a pass"
            found.append(
                f"The sampler draws {some}, so that all workers have as many; one machine would not."
            )
    return found


def _finding(step: int, rank: int | None, size: float, cause: str, *evidence: str) -> Finding:
    return Finding(step, "data", rank, "samples", size, 0.0, cause, evidence)


def _repeated(each: Pass) -> Iterator[Finding]:
    """Samples that are drawn more than once in a pass; so many that the last round is full are padding."""
    workers, seen = len(each.batches), dict[int, int]()
    allowed = -each.samples % workers
    extra: list[tuple[int, int, int]] = []
    total = 0
    for place in range(max(map(len, each.batches))):
        for rank, batches in enumerate(each.batches):
            for index in batches[place] if place < len(batches) else ():
                total += 1
                if index in seen:
                    extra.append((each.steps[rank][place], rank, index))
                else:
                    seen[index] = rank
    if len(extra) <= allowed:
        return
    step, rank, index = extra[0]
    orders = [[index for batch in batches for index in batch] for batches in each.batches]
    same = [r for r in range(1, workers) if orders[r] == orders[0]]
    share = f"{100 * len(extra) / total:.0f} % of the draws of pass {each.number} repeat a sample."
    unseen = each.samples - len(seen)
    never = f"{100 * unseen / each.samples:.0f} % of the samples are never seen." if each.is_whole else ""
    if len(same) == workers - 1:
        cause = "all workers draw the same samples: the loader has no distributed sampler"
        rank = None
    elif seen[index] != rank:
        cause = f"rank {rank} draws samples that rank {seen[index]} has drawn: their orders are not of one permutation"
    else:
        cause = f"rank {rank} draws a sample a second time"
    yield _finding(step, rank, len(extra) / total, cause, share, *filter(None, [never]))


def _missing(each: Pass) -> Iterator[Finding]:
    """Samples that a whole pass does not draw."""
    workers = len(each.batches)
    size = max((len(batch) for batches in each.batches for batch in batches), default=0)
    allowed = workers - 1 + workers * (size - 1) * each.drops
    drawn = {index for batches in each.batches for batch in batches for index in batch}
    unseen = each.samples - len(drawn)
    if each.is_whole and unseen > allowed:
        last = max((step for steps in each.steps for step in steps), default=0)
        cause = f"{unseen} of {counted(each.samples, 'sample')} are never drawn"
        first = sorted({*range(each.samples)} - drawn)[0]
        yield _finding(last, None, unseen / each.samples, cause, f"The first of them is sample {first}.")


def _lengths(each: Pass) -> Iterator[Finding]:
    """Workers with fewer batches than others."""
    counts = [len(batches) for batches in each.batches]
    if each.is_whole and len(set(counts)) > 1:
        rank = counts.index(min(counts))
        cause = (
            f"rank {rank} has {counted(min(counts), 'batch', 'es')} in a pass, and others have {max(counts)}"
        )
        step = min(max(steps, default=0) for steps in each.steps)
        yield _finding(step, rank, 1 - min(counts) / max(counts), cause)


def _same_order(before: Pass, after: Pass) -> Iterator[Finding]:
    """A shuffled order that is the same in every pass."""
    orders = [
        [[i for batch in batches for i in batch] for batches in each.batches] for each in (before, after)
    ]
    if not before.is_whole or not all(map(len, orders[1])):
        return
    is_sorted = all(order == sorted(order) for order in orders[0])
    alike = all(late == early[: len(late)] for early, late in zip(*orders, strict=True))
    if alike and not is_sorted and len(orders[1][0]) > 2:
        step = min(step for steps in after.steps for step in steps)
        cause = (
            f"pass {after.number} has the shuffled order of pass {before.number}: `set_epoch` is not called"
        )
        yield _finding(step, None, 1.0, cause)
