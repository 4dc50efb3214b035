"""The contract of an exchange, as checks that run: on our own exchanges in the tests, on a user's in `shoal check`."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.parallel.exchange.exam import Broken, Stuck, Subject, exchanged, hard_rows, start, together
from shoal.parallel.exchange.exchange import Exchange

NUMEL = 257
"""A prime: no number of workers divides it."""
MARK = 12345.0
"""Written to memory that an exchange must not touch."""
LATE_S = 0.05
"""How long to wait for writes after the end."""
APART_S = 0.02
"""The delay between workers where the order of arrival matters."""


class Check(NamedTuple):
    """One clause of the contract."""

    sentence: str
    run: Callable[[Subject], None]
    """Raises `Broken` with the first values that break it."""
    applies: Callable[[Subject], bool] = lambda subject: True


class Verdict(NamedTuple):
    """The result of a check; an empty problem means that the exchange passes."""

    name: str
    sentence: str
    problem: str = ""


def examine(subject: Subject) -> Iterator[Verdict]:
    """Run all checks that apply, in order; an exchange that does not return ends the examination."""
    for name, check in CHECKS.items():
        if not check.applies(subject):
            continue
        try:
            check.run(subject)
        except Broken as broken:
            ends = isinstance(broken, Stuck) or check.run is _returns
            yield Verdict(
                name, check.sentence, f"{broken}\nNo further check was made." if ends else str(broken)
            )
            if ends:
                return
        else:
            yield Verdict(name, check.sentence)


# The checks. The table at the end says what each requires.


def _returns(subject: Subject) -> None:
    for rows in _cases(subject):
        with _with_case(rows):
            exchanged(subject, rows)


def _same_bits(subject: Subject) -> None:
    for rows in _cases(subject):
        with _with_case(rows):
            _compare_members(exchanged(subject, rows))


def _sum(subject: Subject) -> None:
    for rows in _cases(subject):
        with _with_case(rows):
            _compare_sum(subject, rows, exchanged(subject, rows))


def _permutation(subject: Subject) -> None:
    """A rule must not prefer a rank. (For sums, the check of the sum implies this.)"""
    for rows in _cases(subject):
        result = exchanged(subject, rows)[0]
        for other in (rows.flip(0), rows.roll(1, 0)):
            with _with_case(rows):
                changed = exchanged(subject, other)[0]
                allowed = _epsilon(subject, rows) * len(rows) ** 2 * rows.abs().amax(0)
                _compare(
                    changed, result, allowed.to(rows.dtype), "with the workers in another order", "otherwise"
                )


def _unanimous(subject: Subject) -> None:
    """A rule that returns one worker's bucket instead of W times that would make every step W times shorter."""
    for rows in _cases(subject):
        same = rows[:1].expand_as(rows)
        with _with_case(rows):
            bucket = exchanged(subject, same)[0]
            allowed = (len(rows) + 1) * _epsilon(subject, rows) * len(rows) * rows[0].abs()
            _compare(bucket, len(rows) * rows[0], allowed, "when all workers send the same", "as the sum")


def _any_arrival(subject: Subject) -> None:
    rows = hard_rows(subject.sizes[-1], NUMEL, torch.float32)
    ranks = list(range(len(rows)))
    with _with_case(rows):
        result = exchanged(subject, rows)[0]
        for order in (ranks, ranks[::-1], [*ranks[1::2], *ranks[::2]]):
            changed = exchanged(subject, rows, [APART_S * order.index(rank) for rank in ranks])[0]
            arrival = ", ".join(map(str, order))
            _compare_bits(changed, result, f"when the ranks arrive in the order {arrival}", "otherwise")


def _in_flight(subject: Subject) -> None:
    size = subject.sizes[-1]
    several = [hard_rows(size, numel, torch.float32, seed=numel) for numel in (NUMEL, 3, 64)]

    def work(group: Group, exchange: Exchange) -> list[Tensor]:
        buckets = [rows[group.rank].clone() for rows in several]
        for underway in reversed([start(exchange, group, bucket) for bucket in buckets]):
            underway.wait()
        return buckets

    members = together(subject, size, work)
    for place, rows in enumerate(several):
        with _with_case(rows):
            _compare_with_alone(subject, rows, [member[place] for member in members], "among others")


def _over_when_waited(subject: Subject) -> None:
    rows = hard_rows(subject.sizes[-1], NUMEL, torch.float32)

    def work(group: Group, exchange: Exchange) -> tuple[Tensor, Tensor]:
        bucket = rows[group.rank].clone()
        start(exchange, group, bucket).wait()
        result = bucket.clone()
        bucket.fill_(MARK)  # a wrong exchange lets other workers still read
        time.sleep(LATE_S)
        return result, bucket

    with _with_case(rows):
        members = together(subject, len(rows), work)
        _compare_with_alone(subject, rows, [result for result, _ in members], "right after wait()")
        for rank, (_, bucket) in enumerate(members):
            _compare_bits(
                bucket,
                torch.full_like(bucket, MARK),
                f"on rank {rank}, {LATE_S:g} s after wait()",
                "as it was left",
            )


def _other_memory(subject: Subject) -> None:
    rows = hard_rows(subject.sizes[-1], NUMEL, torch.float32)

    def work(group: Group, exchange: Exchange) -> Tensor:
        memory = torch.full((3 * NUMEL,), MARK)
        bucket = memory[NUMEL : 2 * NUMEL]
        bucket.copy_(rows[group.rank])
        start(exchange, group, bucket).wait()
        time.sleep(LATE_S)  # late writes are the subject of another check
        return memory

    with _with_case(rows):
        members = together(subject, len(rows), work)
        inside = [memory[NUMEL : 2 * NUMEL].clone() for memory in members]
        _compare_with_alone(subject, rows, inside, "in the middle of a buffer")
        for rank, memory in enumerate(members):
            for part, where in ((memory[:NUMEL], "before"), (memory[2 * NUMEL :], "after")):
                whose = f"{where} rank {rank}'s bucket"
                _compare_bits(part, torch.full_like(part, MARK), whose, "as it was left")


def _group_as_before(subject: Subject) -> None:
    for size in subject.sizes:
        rows = hard_rows(size, NUMEL, torch.float32)

        def work(group: Group, exchange: Exchange, rows: Tensor = rows) -> tuple[float, float]:
            start(exchange, group, rows[group.rank].clone()).wait()
            total, letter = torch.ones(5), torch.full((3,), float(group.rank))
            group.all_reduce(total).wait()
            if group.size > 1:
                group.send(letter.clone(), (group.rank + 1) % group.size).wait()
                group.recv(letter, (group.rank - 1) % group.size).wait()
            return total[0].item(), letter[0].item()

        with _with_case(rows):
            for rank, (total, letter) in enumerate(together(subject, size, work)):
                if (total, letter) != (size, (rank - 1) % size):
                    raise Broken(f"after it, an all-reduce or a message of rank {rank} has a wrong result")


def _tolerates_bad_workers(subject: Subject) -> None:
    """Whatever the bad rows hold, the aggregate stays within the range of the good ones."""
    size = subject.sizes[-1]
    bad = subject.make(size).tolerates
    if bad >= size:
        raise Broken(f"it declares that it tolerates {bad} bad workers, but there are only {size} workers")
    for value in (torch.nan, torch.inf, -torch.inf, 1e30):
        for first in (0, size - bad):
            rows = hard_rows(size, NUMEL, torch.float32)
            good = torch.cat([rows[:first], rows[first + bad :]])
            rows[first : first + bad] = value
            with _with_case(rows):
                result = exchanged(subject, rows)[0]
                allowed = size * good.abs().amax(0) * (1 + 1e-5)
                wrong = ~(result.abs() <= allowed)  # NaN is never within anything
                if wrong.any():
                    place = int(wrong.nonzero()[0])
                    ranks = ", ".join(map(str, range(first, first + bad)))
                    raise Broken(
                        f"element {place} is {result[place]:.9g} when rank {ranks} sends {value:g}; "
                        f"the good workers allow at most {allowed[place]:.2g}"
                    )


# What they share.


def _cases(subject: Subject) -> Iterator[Tensor]:
    """One row per worker, for every number of workers, length and dtype."""
    for size in subject.sizes:
        for numel in (NUMEL, 0, 1, 2, size - 1, size, size + 1, 1024):
            for dtype in (torch.float32, torch.float64):
                yield hard_rows(size, numel, dtype)


@contextmanager
def _with_case(rows: Tensor) -> Generator[None]:
    """Report a problem with the data that showed it."""
    try:
        yield
    except Broken as broken:
        size, numel = rows.shape
        kind = str(rows.dtype).removeprefix("torch.")
        workers = f"{size} worker{'s' * (size > 1)}"
        raise type(broken)(f"{workers}, {numel} × {kind}: {broken}") from None


def _compare_with_alone(subject: Subject, rows: Tensor, buckets: Sequence[Tensor], here: str) -> None:
    """Compare with an exchange that runs by itself; other checks judge whether that one is right."""
    for rank, (bucket, alone) in enumerate(
        zip(buckets, exchanged(subject, rows, settle_s=LATE_S), strict=True)
    ):
        _compare_bits(bucket, alone, f"on rank {rank} {here}", "otherwise")


def _compare_members(buckets: Sequence[Tensor]) -> None:
    for rank, bucket in enumerate(buckets):
        _compare_bits(bucket, buckets[0], f"on rank {rank}", "on rank 0")


def _compare_sum(subject: Subject, rows: Tensor, buckets: Sequence[Tensor]) -> None:
    """|result − Σ xᵢ| ≤ (W + 1)·ε·Σ |xᵢ|: every number rounded once, and W − 1 additions in any order."""
    exact = rows.double().sum(0)
    allowed = (len(rows) + 1) * _epsilon(subject, rows) * rows.double().abs().sum(0)
    for rank, bucket in enumerate(buckets):
        _compare(bucket.double(), exact, allowed, f"on rank {rank}", "as the sum")


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
    "returns": Check("every call and its wait end, with buckets of any length, 0 included", _returns),
    "same bits": Check("all workers hold the same bits", _same_bits),
    "the sum": Check(
        "the result is the sum, as precise as its dtype", _sum, lambda subject: not subject.is_rule
    ),
    "no preferred rank": Check(
        "the order of the workers does not matter", _permutation, lambda subject: subject.is_rule
    ),
    "stands for the sum": Check(
        "if all workers send the same, the result is W times that",
        _unanimous,
        lambda subject: subject.is_rule,
    ),
    "any arrival": Check("the order of arrival does not change a bit", _any_arrival),
    "several at once": Check("several exchanges in progress do not disturb each other", _in_flight),
    "over when waited": Check(
        "after wait() the result is complete, and the bucket belongs to the caller", _over_when_waited
    ),
    "own memory only": Check("memory before and after the bucket does not change", _other_memory),
    "group as before": Check("later calls of the group match as before", _group_as_before),
    "tolerates": Check(
        "as many bad workers as declared may send NaN, infinity or huge numbers",
        _tolerates_bad_workers,
        lambda subject: subject.make(subject.sizes[-1]).tolerates > 0,
    ),
}
"""All clauses, in the order of checking."""
