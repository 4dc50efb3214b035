"""How fast collectives are: contenders take turns within one run, and every single call counts.

- The time of a call is that of the slowest worker: a collective is over when it is over for all.
- Rounds are interleaved (every contender once, then every contender again), so that a disturbance affects all of
  them. The figure is the median of single calls, with mean, 95th and 99th percentile beside it.
- Buffers rotate and are refilled before each call, and every result is compared with the right one.
- On a GPU a call ends when the device has finished, not when the call returns.
- The memory-speed limit is measured in the same rounds: every worker copies as many bytes as the buffer has, all at
  once. An all-reduce cannot be faster: each worker must read size · (n / size) = n elements and write as many.

`algbw` is bytes over time; `busbw` multiplies it by the share of the bytes that must cross between workers, so that it
can be compared across world sizes (the convention of nccl-tests).

Every operation has two buffers, `piece` and `whole`. A whole has the size that is measured; a piece is one worker's
share of it for operations in SHARES, and as large as the whole for the others. Each worker fills both with a number of
its own; where a worker sends different parts to different workers, the parts differ.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from shoal.comm.algorithms import ALGORITHMS
from shoal.comm.group import Group
from shoal.comm.reduction import Op
from shoal.errors import ConfigError, unknown

BUS_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda size: 2 * (size - 1) / size,
    "all_gather": lambda size: (size - 1) / size,
    "reduce_scatter": lambda size: (size - 1) / size,
    "broadcast": lambda size: 1.0,
    "reduce": lambda size: 1.0,
    "gather": lambda size: (size - 1) / size,
    "scatter": lambda size: (size - 1) / size,
    "all_to_all": lambda size: (size - 1) / size,
}
"""The share of the bytes that crosses between workers, per operation."""
SHARES = frozenset({"all_gather", "reduce_scatter", "gather", "scatter"})
"""Operations with a whole and one worker's piece of it."""
ADDRESSED = frozenset({"scatter", "all_to_all"})
"""Operations in which a worker sends different parts of its whole to different workers."""
APART = 100.0
"""The difference between two of these parts: more than between two workers."""

LIMIT = "memory"
"""The contender that measures how fast memory is."""
NUM_BUFFERS = 2
CPU = torch.device("cpu")


@dataclass(frozen=True)
class BenchPlan:
    """What is measured."""

    operation: str = "all_reduce"
    sizes: tuple[int, ...] = (1024, 64 * 1024, 1024**2, 8 * 1024**2)
    """Bytes of the buffer (of the whole, where there is one)."""
    op: Op = Op.SUM
    seconds_per_size: float = 2.0
    max_calls: int = 400
    min_calls: int = 7


@dataclass(frozen=True)
class Row:
    """One contender at one size."""

    contender: str
    size: int
    count: int
    type: str
    redop: str
    time_us: float
    mean_us: float
    p95_us: float
    p99_us: float
    algbw: float
    busbw: float
    wrong: int
    calls: int
    of_memory_speed: float


@dataclass(frozen=True)
class Contender:
    """Something that can carry out the operation: `run(piece, whole)`, on memory from `empty`."""

    name: str
    empty: Callable[[int], Tensor]
    run: Callable[[Tensor, Tensor], object]


def sizes_between(begin: int, end: int, factor: int) -> tuple[int, ...]:
    """The sizes from `begin` to `end`, each `factor` times the one before.

    >>> sizes_between(1024, 16384, 4)
    (1024, 4096, 16384)
    """
    if not 0 < begin <= end or factor < 2:
        raise ConfigError(
            f"no sizes from {begin} to {end} by a factor of {factor}", "Give begin ≤ end, factor ≥ 2."
        )
    return tuple(begin * factor**i for i in range(int(math.log(end / begin, factor) + 1e-9) + 1))


def contenders(
    groups: Mapping[str, Group],
    plan: BenchPlan,
    algorithms: Sequence[str] = (),
    device: torch.device = CPU,
) -> list[Contender]:
    """The groups as contenders, and our algorithms on them; shared memory on its own memory and on any other."""
    empty = partial(torch.empty, device=device)
    if plan.operation not in BUS_FACTORS:
        raise ConfigError(unknown("operation", plan.operation, BUS_FACTORS))
    for algorithm in algorithms:
        if algorithm not in ALGORITHMS:
            raise ConfigError(unknown("algorithm", algorithm, ALGORITHMS))
    found: list[Contender] = []
    for name, group in groups.items():
        run = runs(group, plan.op)[plan.operation]
        if name == "shm":
            found += [Contender(name, group.empty, run), Contender(f"{name} (own memory)", torch.empty, run)]
        else:
            found.append(Contender(name, empty, run))
        for algorithm in algorithms:
            found.append(Contender(f"{algorithm} on {name}", empty, _by(group, algorithm)))
    return found


def _by(group: Group, algorithm: str) -> Callable[[Tensor, Tensor], object]:
    return lambda piece, whole: ALGORITHMS[algorithm](group, piece)


def runs(group: Group, op: Op) -> dict[str, Callable[[Tensor, Tensor], object]]:
    """Each operation as a call with (piece, whole); the root is rank 0."""
    at_root = group.rank == 0
    return {
        "all_reduce": lambda piece, whole: group.all_reduce(piece, op).wait(),
        "all_gather": lambda piece, whole: group.all_gather(whole, piece).wait(),
        "reduce_scatter": lambda piece, whole: group.reduce_scatter(piece, whole, op).wait(),
        "broadcast": lambda piece, whole: group.broadcast(piece, 0).wait(),
        "reduce": lambda piece, whole: group.reduce(piece, 0, op).wait(),
        "gather": lambda piece, whole: group.gather(whole if at_root else None, piece).wait(),
        "scatter": lambda piece, whole: group.scatter(piece, whole if at_root else None).wait(),
        "all_to_all": lambda piece, whole: group.all_to_all(piece, whole).wait(),
    }


def number_of(rank: int, call: int) -> float:
    """What a worker fills its buffers with before a call."""
    return float(rank + 1 + call % 5)


def fill(operation: str, rank: int, size: int, call: int, piece: Tensor, whole: Tensor) -> None:
    """Fill a worker's buffers before a call."""
    for buffer in (piece, whole):
        buffer.fill_(number_of(rank, call))
    if operation in ADDRESSED:
        for to, part in enumerate(whole.view(size, -1)):
            part.add_(APART * to)


def num_wrong(operation: str, op: Op, rank: int, size: int, call: int, piece: Tensor, whole: Tensor) -> int:
    """How many elements are not what they should be after a call."""
    given = [number_of(each, call) for each in range(size)]
    reductions = {Op.SUM: sum(given), Op.MIN: min(given), Op.MAX: max(given), Op.PRODUCT: math.prod(given)}
    reductions[Op.AVERAGE] = reductions[Op.SUM] / size
    reduced, own, at_root = [reductions[op]], [given[rank]], rank == 0
    expected = {
        "all_reduce": reduced,
        "reduce_scatter": reduced,
        "reduce": reduced if at_root else own,
        "all_gather": given,
        "gather": given if at_root else own,
        "broadcast": [given[0]],
        "scatter": [given[0] + APART * rank],
        "all_to_all": [each + APART * rank for each in given],
    }[operation]
    found = whole if operation == "all_gather" or (operation == "gather" and at_root) else piece
    right = torch.tensor(expected, device=found.device).repeat_interleave(found.numel() // len(expected))
    return int((found != right).sum().item())


@dataclass
class _Track:
    """One contender at one size: its buffers and its times."""

    contender: Contender
    buffers: list[tuple[Tensor, Tensor]]
    times_s: list[float] = field(default_factory=list[float])
    wrong: int = 0


def measure(
    referee: Group, plan: BenchPlan, entries: Sequence[Contender], device: torch.device = CPU
) -> list[Row]:
    """Measure all contenders; every worker calls it, and every worker gets the rows.

    The referee is a group that is not measured: it aligns the workers before each call.
    """
    empty = partial(torch.empty, device=device)
    limit = Contender(LIMIT, empty, lambda piece, whole: whole.copy_(piece))
    return [row for size in plan.sizes for row in _measure_size(referee, plan, [*entries, limit], size)]


def _measure_size(referee: Group, plan: BenchPlan, entries: Sequence[Contender], size: int) -> list[Row]:
    count = max(1, size // 4)
    tracks: list[_Track] = []
    for entry in entries:
        # A whole has the given size, a piece is the share of one worker. The limit copies all of it.
        # An all-to-all has two wholes, of equally many elements for each worker.
        divided = entry.name != LIMIT and (plan.operation in SHARES or plan.operation in ADDRESSED)
        parts = referee.size if divided else 1
        piece = max(1, count // parts)
        own = piece * parts if plan.operation == "all_to_all" else piece
        buffers = [(entry.empty(own), entry.empty(piece * parts)) for _ in range(NUM_BUFFERS)]
        tracks.append(_Track(entry, buffers))
    for call in range(_agree_on_calls(referee, plan, tracks)):
        for track in tracks:
            _one_call(referee, plan, track, call)
    return [_row(referee, plan, track, size, count, tracks[-1]) for track in tracks]


def _agree_on_calls(referee: Group, plan: BenchPlan, tracks: Sequence[_Track]) -> int:
    """How many rounds fit into the time, from one round to warm up; the same number on every worker."""
    started = time.perf_counter()
    for track in tracks:
        for index in range(NUM_BUFFERS):
            _one_call(referee, plan, track, index)
    took_s = (time.perf_counter() - started) / NUM_BUFFERS
    for track in tracks:
        track.times_s.clear()
    fitting = int(plan.seconds_per_size / max(took_s, 1e-6))
    calls = torch.tensor([min(plan.max_calls, max(plan.min_calls, fitting))])
    referee.broadcast(calls, 0).wait()
    return int(calls.item())


def _one_call(referee: Group, plan: BenchPlan, track: _Track, call: int) -> None:
    piece, whole = track.buffers[call % NUM_BUFFERS]
    is_limit = track.contender.name == LIMIT
    operation = "all_reduce" if is_limit else plan.operation  # its copy needs no parts that differ
    fill(operation, referee.rank, referee.size, call, piece, whole)
    _finish_on(piece)
    # A worker that waits long at the first barrier sleeps; at the second all are awake.
    referee.barrier().wait()
    referee.barrier().wait()
    started = time.perf_counter()
    track.contender.run(piece, whole)
    _finish_on(piece)
    track.times_s.append(time.perf_counter() - started)
    if not is_limit:
        rank, size = referee.rank, referee.size
        track.wrong += num_wrong(plan.operation, plan.op, rank, size, call, piece, whole)


def _finish_on(buffer: Tensor) -> None:
    """Wait for the buffer's device: a call of NCCL returns before the data have moved."""
    if buffer.is_cuda:
        torch.cuda.synchronize(buffer.device)


def _row(referee: Group, plan: BenchPlan, track: _Track, size: int, count: int, limit: _Track) -> Row:
    times, limits = _slowest(referee, track.times_s), _slowest(referee, limit.times_s)
    wrong = torch.tensor([track.wrong])
    referee.all_reduce(wrong).wait()
    median = times.median().item()
    algbw = size / median / 1e9
    return Row(
        contender=track.contender.name,
        size=size,
        count=count,
        type="float",
        redop=plan.op.value if "reduce" in plan.operation else "none",
        time_us=median * 1e6,
        mean_us=times.mean().item() * 1e6,
        p95_us=times.quantile(0.95).item() * 1e6,
        p99_us=times.quantile(0.99).item() * 1e6,
        algbw=algbw,
        busbw=algbw * BUS_FACTORS[plan.operation](referee.size),
        wrong=int(wrong.item()),
        calls=len(track.times_s),
        of_memory_speed=limits.median().item() / median,
    )


def _slowest(referee: Group, times_s: Sequence[float]) -> Tensor:
    times = torch.tensor(times_s, dtype=torch.float64)
    referee.all_reduce(times, Op.MAX).wait()
    return times
