"""The choice among exchanges: each one's collectives, the time of these on the group's links, and the rule that picks.

`Echo` lists the collectives of an exchange; `measure_link` times collectives of such sizes, by all workers and with the
same result on all; `Choice` predicts from both what each candidate costs in a step.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from shoal.comm.costs import mean_elements
from shoal.comm.group import Finished, Group, Work
from shoal.comm.reduction import Op
from shoal.comm.signature import Signature
from shoal.comm.wrapped_group import WrappedGroup
from shoal.errors import GroupError

FIRST_BYTES, GROWTH = 1024, 16
"""The smallest probe, and the ratio of each to the one before."""
LONG_S = 0.05
"""A probe that takes this long shows the rate well enough: no larger one is sent."""
REPEATS, LONG_REPEATS = 5, 2
CLEARLY = 1.5
"""How many times as long a larger probe takes if its bytes matter."""
CLOSE = 1.05
"""A candidate that takes at most this many times the shortest time is as good as the fastest."""


class CodecNotice(UserWarning):
    """Reports which codec the workers chose, and why; not a problem."""


class GroupCall(NamedTuple):
    """One collective of an exchange: what a worker puts into it."""

    operation: str
    num_bytes: int


class Echo(WrappedGroup):
    """As many workers as `group` has, all of which hold what this worker holds; `messages` lists the collectives.

    An exchange over it takes the time of its computation: encoding, and decoding the payloads of all workers.
    """

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.rank = group.size - 1  # rank 0 warns of what the exchange itself will warn of
        self.messages: list[GroupCall] = []

    def around(self, group: Group, ranks: Sequence[int]) -> Self:
        """The same around a smaller group."""
        del ranks
        return type(self)(group)

    def issue(self, call: Signature, piece: Tensor, whole: Tensor | None = None) -> Work:
        """Copy this worker's piece to every place; a sum stays this worker's summand."""
        if call.operation not in ("all_reduce", "all_gather"):
            raise GroupError(f"an echo knows no {call.operation}", "Use all_reduce or all_gather.")
        self.messages.append(GroupCall(call.operation, piece.nbytes))
        if whole is not None:
            whole.view(self.size, -1).copy_(piece.reshape(1, -1).expand(self.size, -1))
        return Finished()


@dataclass(frozen=True)
class LinkTimes:
    """Measured times of collectives; between two measured sizes and beyond the last, on a line.

    >>> LinkTimes(2, {"all_gather": [(0, 0.001), (1000, 0.002)]}).seconds(GroupCall("all_gather", 2000))
    0.003
    """

    size: int
    """Workers."""
    points: Mapping[str, Sequence[tuple[int, float]]]
    """For each operation: the bytes of one worker, and the seconds of the collective; ascending."""

    def seconds(self, message: GroupCall) -> float:
        """How long a collective takes."""
        points = self.points[message.operation]
        if len(points) == 1:
            return points[0][1]
        place = next(
            (number for number in range(1, len(points)) if message.num_bytes <= points[number][0]),
            len(points) - 1,
        )
        (lower, at_lower), (upper, at_upper) = points[place - 1 : place + 1]
        slope = max(0.0, (at_upper - at_lower) / (upper - lower))
        return at_lower + slope * (message.num_bytes - lower)

    @property
    def bits_per_s(self) -> float:
        """The rate at which a worker receives: from the two largest probes, without their latency.

        Where the larger one hardly takes longer, latency and noise decide: then from the largest alone, as a lower
        bound.
        """
        rates: list[float] = []
        for operation, points in self.points.items():
            (lower, at_lower), (upper, at_upper) = points[-2:] if len(points) > 1 else ((0, 0.0), points[0])
            if at_upper < CLEARLY * at_lower:
                lower, at_lower = 0, 0.0
            rates.append(
                8 * received_bytes(GroupCall(operation, upper - lower), self.size) / (at_upper - at_lower)
            )
        return max(rates, default=0.0)


def received_bytes(message: GroupCall, size: int) -> float:
    """The bytes that each of `size` workers receives.

    >>> received_bytes(GroupCall("all_gather", 100), 4), received_bytes(GroupCall("all_reduce", 100), 4)
    (300.0, 150.0)
    """
    return mean_elements(message.operation, size, message.num_bytes)


def measure_link(group: Group, messages: Sequence[GroupCall], device: torch.device) -> LinkTimes:
    """Time collectives of growing size, up to the largest of `messages`, for each of their operations.

    A collective. Costs five messages of each size; of one that takes 0.05 s or more, two.
    """
    points: dict[str, list[tuple[int, float]]] = {}
    for operation in dict.fromkeys(message.operation for message in messages):
        largest = max(message.num_bytes for message in messages if message.operation == operation)
        found = points.setdefault(operation, [])
        for num_bytes in probe_sizes(largest):
            found.append((num_bytes, _seconds(group, GroupCall(operation, num_bytes), device)))
            if len(found) > 1 and found[-1][1] >= LONG_S:
                break
    return LinkTimes(group.size, points)


def probe_sizes(largest: int) -> list[int]:
    """Sizes from 1 KiB to the largest message, each a few times the one before; whole float32 numbers.

    >>> probe_sizes(100_002)
    [1024, 16384, 100000]
    """
    sizes = [FIRST_BYTES]
    while sizes[-1] * GROWTH < largest:
        sizes.append(sizes[-1] * GROWTH)
    return [*sizes, largest // 4 * 4] if largest >= sizes[-1] + 4 else sizes


def _seconds(group: Group, message: GroupCall, device: torch.device) -> float:
    """The shortest time of one collective, on the slowest worker: what else the machine does only adds to it."""
    piece = torch.zeros(message.num_bytes // 4, device=device)
    whole = piece.new_empty(group.size * len(piece)) if message.operation == "all_gather" else None

    def work() -> None:
        (group.all_reduce(piece) if whole is None else group.all_gather(whole, piece)).wait()

    shortest = math.inf
    for number in range(REPEATS):
        group.barrier().wait()
        shortest = min(shortest, slowest(group, [timed(work, device)])[0])
        if number + 1 >= LONG_REPEATS and shortest >= LONG_S:
            break
    return shortest


def timed(work: Callable[[], object], device: torch.device) -> float:
    """How many seconds some work takes, on the device, too."""
    start = _finished(device)
    work()
    return _finished(device) - start


def slowest(group: Group, seconds: Sequence[float]) -> list[float]:
    """The largest of all workers' times, for each: the same numbers on all of them."""
    times: Tensor = torch.tensor(seconds, dtype=torch.float64)
    group.all_reduce(times, Op.MAX).wait()
    return times.tolist()


def _finished(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


@dataclass(frozen=True)
class Candidate:
    """What one exchange costs in a step."""

    name: str
    local_s: float
    """Encoding and decoding, on the slowest worker."""
    messages: Sequence[GroupCall]
    """The collectives of one worker in a step."""

    def sent_bytes(self, size: int) -> float:
        """What one of `size` workers sends in its collectives, and receives."""
        return math.fsum(received_bytes(message, size) for message in self.messages)

    def seconds(self, link: LinkTimes) -> float:
        """The predicted time of the exchange in a step: computation, then one message after the other."""
        return self.local_s + math.fsum(link.seconds(message) for message in self.messages)

    def break_even_bits_per_s(self, dense: "Candidate", size: int) -> float:
        """The link rate above which encoding and decoding take longer than the bytes that they save.

        0 where nothing is saved, infinite where it costs nothing.
        """
        saved = dense.sent_bytes(size) - self.sent_bytes(size)
        extra_s = self.local_s - dense.local_s
        if saved <= 0:
            return 0.0
        return 8 * saved / extra_s if extra_s > 0 else math.inf


@dataclass(frozen=True)
class Choice:
    """The measurements of all candidates, and the one that was chosen from them.

    The first candidate whose predicted time is within 5 % of the shortest: candidates are listed by preference, the
    most precise first.
    """

    link: LinkTimes
    candidates: Sequence[Candidate]
    dense: Candidate
    """Uncompressed, also where that is no candidate."""

    @property
    def chosen(self) -> Candidate:
        """What the rule picks."""
        shortest = min(self._seconds(each) for each in self.candidates)
        return next(each for each in self.candidates if self._seconds(each) <= CLOSE * shortest)

    @property
    def reason(self) -> str:
        """The predicted times, in one phrase."""
        chosen, rate = self.chosen, in_bits(self.link.bits_per_s)
        took = f"predicted exchange of {self._in_ms(chosen)} per step on links of {rate}"
        if chosen.messages != self.dense.messages:
            return f"{took}, {self._in_ms(self.dense)} without compression"
        others = [each for each in self.candidates if each is not chosen]
        best = min(others, key=self._seconds, default=None)
        return f"{took}, {self._in_ms(best)} with the fastest codec ({best.name})" if best else took

    def record(self) -> dict[str, Any]:
        """The event of the choice."""
        return {
            "event": "codec",
            "chosen": self.chosen.name,
            "reason": self.reason,
            "link_bits_per_s": round(self.link.bits_per_s),
            "candidates": [self._row(each) for each in self.candidates],
        }

    def _seconds(self, candidate: Candidate) -> float:
        return candidate.seconds(self.link)

    def _in_ms(self, candidate: Candidate) -> str:
        return f"{1e3 * self._seconds(candidate):,.1f} ms"

    def _row(self, candidate: Candidate) -> dict[str, Any]:
        break_even = candidate.break_even_bits_per_s(self.dense, self.link.size)
        return {
            "codec": candidate.name,
            "encode_decode_ms": round(1e3 * candidate.local_s, 4),
            "bytes": round(candidate.sent_bytes(self.link.size)),
            "predicted_ms": round(1e3 * self._seconds(candidate), 4),
            "break_even_gbit_s": round(break_even / 1e9, 4) if math.isfinite(break_even) else None,
        }


def in_bits(bits_per_s: float) -> str:
    """A rate with its unit.

    >>> in_bits(98.31e6), in_bits(12.04e9)
    ('98.3 Mbit/s', '12 Gbit/s')
    """
    factor, unit = (1e9, "G") if bits_per_s >= 1e9 else (1e6, "M")
    return f"{bits_per_s / factor:.3g} {unit}bit/s"
