"""How contracts are examined: checks in order, workers as threads, data that is hard to add up, limits for waits."""

import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from shoal.comm.group import Group, Work
from shoal.comm.threads.group import ThreadGroup
from shoal.comm.threads.meetings import frames_of
from shoal.config.sections.compression import CompressedConfig
from shoal.config.sections.exchange import ExchangeConfig, RobustConfig, StagesConfig
from shoal.errors import ConfigError, MemberError, ShoalError
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.exchange.build import build_exchange, check_exchange
from shoal.strategies.exchange.exchange import Exchange
from shoal.strategies.exchange.user_exchange import UserExchange
from shoal.strategies.strategy import TrainingClock

LIMIT_S = 10.0
"""How long one exchange of a few thousand elements may take."""
GRACE_S = 1.0
"""How long the other workers may take to notice that one has failed."""

Value = TypeVar("Value")


class Broken(Exception):  # noqa: N818  a finding about the exchange, not an error of ours
    """An exchange violates its contract; the text says where, with the values."""


class Stuck(Broken):
    """An exchange did not return: its threads still run, so no other check is possible."""


class Check(NamedTuple):
    """One clause of a contract."""

    sentence: str
    run: Callable[[Any, Any], object]
    """Given the subject and a case: raises `Broken` if it violates the clause; may return what it found, in words."""
    cases: Callable[[Any], Iterable[Any]]
    applies: Callable[[Any], bool] = lambda subject: True


class Verdict(NamedTuple):
    """The result of a check; an empty problem means that the subject passes."""

    name: str
    sentence: str
    problem: str = ""
    found: str = ""
    """What was measured, of the cases that say it."""


def examined(checks: Mapping[str, Check], subject: Any, described: Callable[[Any], str]) -> Iterator[Verdict]:
    """Run all checks that apply, in order; a problem is reported with the case that showed it.

    If the first check finds a problem, or a subject does not return, no further check is made.
    """
    for number, (name, check) in enumerate(checks.items()):
        if not check.applies(subject):
            continue
        problem, ends = "", False
        found: list[str] = []
        for case in check.cases(subject):
            try:
                said = check.run(subject, case)
            except Exception as error:  # any exception: this runs the user's code
                ends = isinstance(error, Stuck) or number == 0
                reason = str(error) if isinstance(error, Broken) else message_of(error)
                problem = f"{described(case)}: {reason}" + "\nNo further check was made." * ends
                break
            found += [said] if isinstance(said, str) and said else []
        yield Verdict(name, check.sentence, problem, ", ".join(found))
        if ends:
            return


def num_workers(size: int) -> str:
    """A number of workers, in words."""
    return f"{size} worker{'s' * (size > 1)}"


@dataclass(frozen=True)
class Subject:
    """The exchange to check: how to build it, and what it declares."""

    make: Callable[[int], Exchange]
    """One worker's exchange, for this number of workers."""
    sizes: Sequence[int]
    """The numbers of workers to check it with."""
    is_rule: bool = False
    """It is not a sum."""
    precision: torch.dtype | None = None
    """Its sums are as precise as this; None: as the bucket's dtype."""
    limit_s: float = LIMIT_S
    is_lossy: bool = False
    """It stands for the sum only over many steps (a codec with feedback) or in the mean: its value is not checked."""


def subject_of(
    config: ExchangeConfig,
    workers: int,
    is_rule: bool = False,
    precision: torch.dtype | None = None,
    limit_s: float = LIMIT_S,
) -> Subject:
    """The exchange of a config, for every number of workers up to `workers` that it accepts."""
    if isinstance(config, StagesConfig):
        raise ConfigError(
            "the stages of an exchange are checked one by one", f"Check each of: {', '.join(config.plan)}"
        )
    check_exchange(config, workers)

    def make(size: int) -> Exchange:
        return build_exchange(config, size, TrainingClock())

    made = make(workers)
    if isinstance(made, UserExchange):
        is_rule, precision = is_rule or made.declared("is_rule"), precision or made.declared("precision")
    sizes = [size for size in range(1, workers + 1) if _allowed(config, size)]
    is_lossy = isinstance(config, CompressedConfig) and not config.is_neutral
    return Subject(make, sizes, is_rule or isinstance(config, RobustConfig), precision, limit_s, is_lossy)


def _allowed(config: ExchangeConfig, size: int) -> bool:
    try:
        check_exchange(config, size)
    except ConfigError:
        return False
    return True


def hard_rows(size: int, numel: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """One bucket per worker: numbers of both signs, from a millionth to a thousand, as gradients are.

    Their sum depends on the order of the additions, and a dtype with a short range loses them.
    """
    draw = torch.Generator().manual_seed(seed)
    magnitude = 10 ** (9 * torch.rand(size, numel, generator=draw, dtype=torch.float64) - 6)
    return (torch.randn(size, numel, generator=draw, dtype=torch.float64) * magnitude).to(dtype)


def start(exchange: Exchange, group: Group, flat: Tensor) -> Work:
    """Start the exchange of a flat tensor. Buckets of different lengths are of different parameters."""
    return exchange(group, Bucket.of(f"param{flat.numel()}", flat))


def exchanged(
    subject: Subject, rows: Tensor, delays_s: Sequence[float] = (), settle_s: float = 0.0
) -> list[Tensor]:
    """Every worker's bucket after the exchange; row i is worker i's.

    Worker i starts `delays_s[i]` late; by `settle_s` after the end, no worker should still be writing.
    """

    def work(group: Group, exchange: Exchange) -> Tensor:
        bucket = rows[group.rank].clone()
        if delays_s:
            time.sleep(delays_s[group.rank])
        start(exchange, group, bucket).wait()
        time.sleep(settle_s)
        return bucket

    return together(subject, len(rows), work)


def together(subject: Subject, size: int, work: Callable[[Group, Exchange], Value]) -> list[Value]:
    """The results of `work(group, exchange)` of all workers, in rank order; a failure raises `Broken`."""
    return together_on(size, subject.limit_s, lambda group: work(group, subject.make(size)))


def together_on(size: int, limit_s: float, work: Callable[[Group], Value]) -> list[Value]:
    """The results of `work(group)` of all workers, each a thread, within a time limit; a failure raises `Broken`."""
    values: dict[int, Value] = {}
    failures: list[tuple[int, BaseException]] = []

    def member(group: ThreadGroup) -> None:
        try:
            group.beat()
            values[group.rank] = work(group)
        except BaseException as error:
            failures.append((group.rank, error))
            group.fail(error)
        finally:
            group.close()

    # The group times out first: its error says which call and which member the others wait for.
    groups = ThreadGroup.world(size, limit_s / 2)
    threads = [threading.Thread(target=member, args=(group,), daemon=True) for group in groups]
    for thread in threads:
        thread.start()
    _wait(threads, failures, limit_s)
    alive = [rank for rank, thread in enumerate(threads) if thread.is_alive()]
    if failures:
        # An error that follows from another worker's failure is not the cause.
        rank, error = next((each for each in failures if not isinstance(each[1], MemberError)), failures[0])
        raise (Stuck if alive else Broken)(f"rank {rank}: {message_of(error)}")
    if alive:
        place = _place(threads[alive[0]])
        raise Stuck(f"rank {alive[0]} has not returned after {limit_s:g} s: it is {place}")
    return [values[rank] for rank in range(size)]


def _wait(threads: list[threading.Thread], failures: list[tuple[int, BaseException]], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    shortened = False
    for thread in threads:
        while thread.is_alive() and time.monotonic() < deadline:
            thread.join(0.02)
            if failures and not shortened:
                shortened, deadline = True, min(deadline, time.monotonic() + GRACE_S)


def message_of(error: BaseException) -> str:
    """What an error says; of one that is not ours also its type, unless it is a RuntimeError, and the line."""
    if isinstance(error, ShoalError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" (at {frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    named = (
        str(error) if type(error) is RuntimeError else f"{type(error).__name__}: {error}".removesuffix(": ")
    )
    return f"{named}{where}"


def _place(thread: threading.Thread) -> str:
    frames = frames_of(thread.ident)
    return f"at {frames[0].f_code.co_filename}:{frames[0].f_lineno}" if frames else "at an unknown line"
