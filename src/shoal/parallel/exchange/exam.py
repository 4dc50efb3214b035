"""Exchanges under examination: workers as threads, data that is hard to add up, and an end to every wait."""

import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.comm.threads import ThreadGroup
from shoal.config.schema import ExchangeConfig, RobustConfig, StagesConfig
from shoal.errors import ConfigError, MemberError
from shoal.parallel.exchange.build import build_exchange, check_exchange
from shoal.parallel.exchange.exchange import Exchange
from shoal.parallel.exchange.own import Own
from shoal.parallel.now import Now

LIMIT_S = 10.0
"""How long one exchange of a few thousand elements may take."""
GRACE_S = 1.0
"""How long the others may take to notice that one of them has failed."""

Value = TypeVar("Value")


class Broken(Exception):  # noqa: N818  a finding about the exchange, not an error of ours
    """An exchange did not keep its contract; the text says where, with the values."""


class Stuck(Broken):
    """An exchange did not come back at all: its threads are still at work, and nothing more can be measured."""


@dataclass(frozen=True)
class Subject:
    """An exchange, as the examiner sees it: how to make one, and what it says about itself."""

    make: Callable[[int], Exchange]
    """One worker's exchange among so many workers."""
    sizes: Sequence[int]
    """The numbers of workers it is examined with."""
    is_rule: bool = False
    """It is no sum."""
    precision: torch.dtype | None = None
    """Its sums are as precise as this; none: as the bucket's own kind of number."""
    limit_s: float = LIMIT_S


def subject_of(
    config: ExchangeConfig,
    workers: int,
    is_rule: bool = False,
    precision: torch.dtype | None = None,
    limit_s: float = LIMIT_S,
) -> Subject:
    """What a config describes, for 1 to so many workers, less the numbers that it refuses."""
    if isinstance(config, StagesConfig):
        raise ConfigError(
            "the stages of an exchange are checked one by one", f"They are: {', '.join(config.plan)}"
        )
    check_exchange(config, workers)

    def make(size: int) -> Exchange:
        return build_exchange(config, size, Now())

    made = make(workers)
    if isinstance(made, Own):
        is_rule, precision = is_rule or made.is_rule, precision or made.precision
    sizes = [size for size in range(1, workers + 1) if _allowed(config, size)]
    return Subject(make, sizes, is_rule or isinstance(config, RobustConfig), precision, limit_s)


def _allowed(config: ExchangeConfig, size: int) -> bool:
    try:
        check_exchange(config, size)
    except ConfigError:
        return False
    return True


def hard_rows(size: int, numel: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """One bucket per worker: numbers of both signs, from a millionth to a thousand, as gradients are.

    Sums of them depend on the order in which they are taken, and a number format with a short range loses them.
    """
    draw = torch.Generator().manual_seed(seed)
    magnitude = 10 ** (9 * torch.rand(size, numel, generator=draw, dtype=torch.float64) - 6)
    return (torch.randn(size, numel, generator=draw, dtype=torch.float64) * magnitude).to(dtype)


def exchanged(
    subject: Subject, rows: Tensor, delays_s: Sequence[float] = (), settle_s: float = 0.0
) -> list[Tensor]:
    """What every worker's bucket is after the exchange; row i is worker i's.

    Worker i comes `delays_s[i]` late; `settle_s` after the end, nobody should be writing any more.
    """

    def work(group: Group, exchange: Exchange) -> Tensor:
        bucket = rows[group.rank].clone()
        if delays_s:
            time.sleep(delays_s[group.rank])
        exchange(group, bucket).wait()
        time.sleep(settle_s)
        return bucket

    return together(subject, len(rows), work)


def together(subject: Subject, size: int, work: Callable[[Group, Exchange], Value]) -> list[Value]:
    """What `work(group, exchange)` gives on every worker, in rank order; what goes wrong is told by `Broken`."""
    values: dict[int, Value] = {}
    failures: list[tuple[int, BaseException]] = []

    def member(group: ThreadGroup) -> None:
        try:
            group.beat()
            values[group.rank] = work(group, subject.make(size))
        except BaseException as error:
            failures.append((group.rank, error))
            group.fail(error)
        finally:
            group.close()

    # The group gives up first: it knows for what, and for whom, its members wait.
    groups = ThreadGroup.world(size, subject.limit_s / 2)
    threads = [threading.Thread(target=member, args=(group,), daemon=True) for group in groups]
    for thread in threads:
        thread.start()
    _wait(threads, failures, subject.limit_s)
    alive = [rank for rank, thread in enumerate(threads) if thread.is_alive()]
    if failures:
        # What a worker suffered because another had failed is no news.
        rank, error = next((each for each in failures if not isinstance(each[1], MemberError)), failures[0])
        raise (Stuck if alive else Broken)(f"rank {rank}: {_told(error)}")
    if alive:
        place = _place(threads[alive[0]])
        raise Stuck(f"rank {alive[0]} has not come back after {subject.limit_s:g} s: it is {place}")
    return [values[rank] for rank in range(size)]


def _wait(threads: list[threading.Thread], failures: list[tuple[int, BaseException]], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    shortened = False
    for thread in threads:
        while thread.is_alive() and time.monotonic() < deadline:
            thread.join(0.02)
            if failures and not shortened:
                shortened, deadline = True, min(deadline, time.monotonic() + GRACE_S)


def _told(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = (
        f" (at {frames[-1].filename}:{frames[-1].lineno})" if frames and type(error) is RuntimeError else ""
    )
    return f"{error}{where}" if str(error) else f"{type(error).__name__}{where}"


def _place(thread: threading.Thread) -> str:
    frame: FrameType | None = sys._current_frames().get(thread.ident or 0)  # pyright: ignore[reportPrivateUsage]
    return f"at {frame.f_code.co_filename}:{frame.f_lineno}" if frame else "nowhere to be found"
