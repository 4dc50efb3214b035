"""How long collectives take on the group's links, by their size: measured by all workers, and the same on all."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.comm.costs import mean_elements
from shoal.comm.group import Group
from shoal.comm.reduction import Op
from shoal.strategies.exchange.echo import GroupCall

FIRST_BYTES, GROWTH = 1024, 16
"""The smallest probe, and the ratio of each to the one before."""
LONG_S = 0.05
"""A probe that takes this long shows the rate well enough: no larger one is sent."""
REPEATS, LONG_REPEATS = 5, 2
CLEARLY = 1.5
"""How many times as long a larger probe takes if its bytes matter."""


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
