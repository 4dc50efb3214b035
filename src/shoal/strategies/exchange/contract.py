"""The contract of an exchange, as checks that run: on our own exchanges in the tests, on a user's in `shoal check`."""

import time
from collections.abc import Iterator, Sequence
from operator import attrgetter

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.strategies.exchange.exam import (
    Broken,
    Check,
    Subject,
    Verdict,
    examined,
    exchanged,
    hard_rows,
    num_workers,
    start,
    together,
)
from shoal.strategies.exchange.exchange import Exchange

NUMEL = 257
"""A prime: no number of workers divides it."""
MARK = 12345.0
"""Written to memory that an exchange must not touch."""
ASTRAY = 2
"""Times the number of workers: how much longer than every good gradient a rule's result may be. A geometric median
with f bad of W rows may be 2·(W − f)/(W − 2·f) times as long; a rule that a bad worker spoils has no limit."""
LATE_S = 0.05
"""How long to wait for writes after the end."""
APART_S = 0.02
"""The delay between workers where the order of arrival matters."""


def _every_case(subject: Subject) -> Iterator[Tensor]:
    """One row per worker, for every number of workers and length, and some lengths in another dtype."""
    for size in subject.sizes:
        for numel in dict.fromkeys((NUMEL, 0, 1, 2, size - 1, size, size + 1, 1024)):
            yield hard_rows(size, numel, torch.float32)
        for numel in (NUMEL, 0, 1):
            yield hard_rows(size, numel, torch.float64)


def _every_size(subject: Subject) -> list[Tensor]:
    return [hard_rows(size, NUMEL, torch.float32) for size in subject.sizes]


def _largest_size(subject: Subject) -> list[Tensor]:
    return _every_size(subject)[-1:]


def examine(subject: Subject) -> Iterator[Verdict]:
    """Run all checks that apply, in order; an exchange that does not return ends the examination."""
    return examined(CHECKS, subject, described)


# The checks. The table at the end says what each requires.


def _same_bits(subject: Subject, rows: Tensor) -> None:
    first, *others = exchanged(subject, rows)
    for rank, bucket in enumerate(others, start=1):
        _compare_bits(bucket, first, f"on rank {rank}", "on rank 0")


def _sum(subject: Subject, rows: Tensor) -> None:
    """|result − Σ xᵢ| ≤ (W + 1)·ε·Σ |xᵢ|: every number rounded once, and W − 1 additions in any order."""
    exact = rows.double().sum(0)
    allowed = (len(rows) + 1) * _epsilon(subject, rows) * rows.double().abs().sum(0)
    for rank, bucket in enumerate(exchanged(subject, rows)):
        _compare(bucket.double(), exact, allowed, f"on rank {rank}", "as the sum")


def _permutation(subject: Subject, rows: Tensor) -> None:
    """A rule must not prefer a rank. (For sums, the check of the sum implies this.)"""
    result = exchanged(subject, rows)[0]
    allowed = (_epsilon(subject, rows) * len(rows) ** 2 * rows.abs().amax(0)).to(rows.dtype)
    for other in (rows.flip(0), rows.roll(1, 0)):
        changed = exchanged(subject, other)[0]
        _compare(changed, result, allowed, "with the workers in another order", "otherwise")


def _unanimous(subject: Subject, rows: Tensor) -> None:
    """A rule that returns one worker's bucket instead of W times that would make every step W times shorter."""
    bucket = exchanged(subject, rows[:1].expand_as(rows))[0]
    allowed = (len(rows) + 1) * _epsilon(subject, rows) * len(rows) * rows[0].abs()
    _compare(bucket, len(rows) * rows[0], allowed, "when all workers send the same", "as the sum")


def _any_arrival(subject: Subject, rows: Tensor) -> None:
    ranks = list(range(len(rows)))
    result = exchanged(subject, rows)[0]
    for order in (ranks, ranks[::-1], [*ranks[1::2], *ranks[::2]]):
        changed = exchanged(subject, rows, [APART_S * order.index(rank) for rank in ranks])[0]
        arrival = ", ".join(map(str, order))
        _compare_bits(changed, result, f"when the ranks arrive in the order {arrival}", "otherwise")


def _in_flight(subject: Subject, rows: Tensor) -> None:
    several = [rows, *(hard_rows(len(rows), numel, rows.dtype, seed=numel) for numel in (3, 64))]

    def work(group: Group, exchange: Exchange) -> list[Tensor]:
        buckets = [one[group.rank].clone() for one in several]
        for underway in reversed([start(exchange, group, bucket) for bucket in buckets]):
            underway.wait()
        return buckets

    members = together(subject, len(rows), work)
    for place, one in enumerate(several):
        here = f"among others, in a bucket of {one.shape[1]},"
        _compare_with_alone(subject, one, [member[place] for member in members], here)


def _over_when_waited(subject: Subject, rows: Tensor) -> None:
    def work(group: Group, exchange: Exchange) -> tuple[Tensor, Tensor]:
        bucket = rows[group.rank].clone()
        start(exchange, group, bucket).wait()
        result = bucket.clone()
        bucket.fill_(MARK)  # a wrong exchange lets other workers still read
        time.sleep(LATE_S)
        return result, bucket

    members = together(subject, len(rows), work)
    _compare_with_alone(subject, rows, [result for result, _ in members], "right after wait()")
    for rank, (_, bucket) in enumerate(members):
        _compare_with_mark(bucket, f"on rank {rank}, {LATE_S:g} s after wait()")


def _other_memory(subject: Subject, rows: Tensor) -> None:
    def work(group: Group, exchange: Exchange) -> Tensor:
        memory = torch.full((3, NUMEL), MARK)
        memory[1] = rows[group.rank]
        start(exchange, group, memory[1]).wait()
        time.sleep(LATE_S)  # late writes are the subject of another check
        return memory

    members = together(subject, len(rows), work)
    _compare_with_alone(subject, rows, [memory[1] for memory in members], "in the middle of a buffer")
    for rank, memory in enumerate(members):
        _compare_with_mark(memory[0], f"before rank {rank}'s bucket")
        _compare_with_mark(memory[2], f"after rank {rank}'s bucket")


def _group_as_before(subject: Subject, rows: Tensor) -> None:
    size = len(rows)

    def work(group: Group, exchange: Exchange) -> tuple[float, float]:
        start(exchange, group, rows[group.rank].clone()).wait()
        total, letter = torch.ones(5), torch.full((3,), float(group.rank))
        group.all_reduce(total).wait()
        if size > 1:
            group.send(letter.clone(), (group.rank + 1) % size).wait()
            group.recv(letter, (group.rank - 1) % size).wait()
        return total[0].item(), letter[0].item()

    for rank, (total, letter) in enumerate(together(subject, size, work)):
        if (total, letter) != (size, (rank - 1) % size):
            raise Broken(f"after it, an all-reduce or a message of rank {rank} has a wrong result")


def _tolerates_bad_workers(subject: Subject, rows: Tensor) -> None:
    """Whatever the bad rows hold, the aggregate stays near the good ones."""
    size = len(rows)
    bad = subject.make(size).tolerates
    if bad >= size:
        raise Broken(f"it declares that it tolerates {bad} bad workers, but there are only {size} workers")
    for value in (torch.nan, torch.inf, -torch.inf, 1e30):
        for first in (0, size - bad):
            sent = rows.clone()
            sent[first : first + bad] = value
            good = torch.cat([rows[:first], rows[first + bad :]])
            length = exchanged(subject, sent)[0].double().norm().item() / size
            longest = good.double().norm(dim=1).max().item()
            if not length <= ASTRAY * size * longest:  # NaN is no number of anything
                ranks = ", ".join(map(str, range(first, first + bad)))
                raise Broken(
                    f"the result has the norm {length:.3g} when rank {ranks} sends {value:g}, and the good workers' "
                    f"gradients at most {longest:.3g}"
                )


# What they share.


def described(rows: Tensor) -> str:
    """A case, in words."""
    size, numel = rows.shape
    return f"{num_workers(size)}, {numel} × {str(rows.dtype).removeprefix('torch.')}"


def _compare_with_alone(subject: Subject, rows: Tensor, buckets: Sequence[Tensor], here: str) -> None:
    """Compare with an exchange that runs by itself; other checks judge whether that one is right."""
    for rank, alone in enumerate(exchanged(subject, rows, settle_s=LATE_S)):
        _compare_bits(buckets[rank], alone, f"on rank {rank} {here}", "otherwise")


def _compare_with_mark(found: Tensor, here: str) -> None:
    _compare_bits(found, torch.full_like(found, MARK), here, "as it was left")


def _epsilon(subject: Subject, rows: Tensor) -> float:
    return max(torch.finfo(rows.dtype).eps, torch.finfo(subject.precision or rows.dtype).eps)


def _compare(found: Tensor, expected: Tensor, allowed: Tensor, here: str, there: str) -> None:
    if found.shape != expected.shape:
        raise Broken(f"the bucket has {found.numel()} elements {here}, and {expected.numel()} {there}")
    wrong = ~((found - expected).abs() <= allowed)
    if wrong.any():
        place = int(wrong.nonzero()[0])
        raise Broken(
            f"element {place} is {found[place]:.9g} {here}, and {expected[place]:.9g} {there} "
            f"(they may differ by {allowed[place]:.2g})"
        )


def _compare_bits(found: Tensor, expected: Tensor, here: str, there: str) -> None:
    if not torch.equal(found.view(torch.uint8), expected.view(torch.uint8)):
        differ = (found.view(torch.uint8) != expected.view(torch.uint8)).view(len(found), -1).any(1)
        place = int(differ.nonzero()[0])
        raise Broken(f"element {place} is {found[place]:.17g} {here}, and {expected[place]:.17g} {there}")


CHECKS: dict[str, Check] = {
    "returns": Check("every call and its wait end, for buckets of any length", exchanged, _every_case),
    "same bits": Check("all workers hold the same bits", _same_bits, _every_case),
    "the sum": Check(
        "the result is the sum, as precise as its dtype",
        _sum,
        _every_case,
        lambda subject: not subject.is_rule and not subject.is_lossy,
    ),
    "no preferred rank": Check(
        "the order of the workers does not matter", _permutation, _every_case, attrgetter("is_rule")
    ),
    "stands for the sum": Check(
        "if all workers send the same, the result is W times that",
        _unanimous,
        _every_case,
        attrgetter("is_rule"),
    ),
    "any arrival": Check("the order of arrival does not change a bit", _any_arrival, _largest_size),
    "several at once": Check(
        "several exchanges in progress do not disturb each other", _in_flight, _largest_size
    ),
    "over when waited": Check(
        "after wait() the result is complete, and the bucket is the caller's",
        _over_when_waited,
        _largest_size,
    ),
    "own memory only": Check(
        "memory before and after the bucket does not change", _other_memory, _largest_size
    ),
    "group as before": Check("later calls of the group match as before", _group_as_before, _every_size),
    "tolerates": Check(
        "as many bad workers as declared may send NaN, infinity or huge numbers",
        _tolerates_bad_workers,
        _largest_size,
        lambda subject: subject.make(subject.sizes[-1]).tolerates > 0,
    ),
}
"""All clauses, in the order of checking."""
