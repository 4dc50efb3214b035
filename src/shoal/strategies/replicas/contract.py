"""The contract of a strategy of whole replicas, as checks that run: on ours in the tests, on a user's in `shoal check`.

Workers are threads that train a small network in float64, so that only a wrong sum or a lost state exceeds the bound.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import torch
from torch import Tensor, nn

from shoal import optim
from shoal.comm.alone import alone
from shoal.comm.group import Group
from shoal.config.sections.model import CrossEntropyConfig
from shoal.config.sections.optimizer import AdamConfig, OptimizerConfig, SgdConfig
from shoal.data.dataset import Batch
from shoal.events.spans import HostClock, SpanRecorder
from shoal.models import build_loss
from shoal.strategies.exchange.exam import (
    LIMIT_S,
    Broken,
    Check,
    Value,
    Verdict,
    examined,
    num_workers,
    together_on,
)
from shoal.strategies.exchange.exchange import AllReduce
from shoal.strategies.gradient_engine import build_engine
from shoal.strategies.guard import Guard
from shoal.strategies.layout.whole import Whole
from shoal.strategies.pieces.piece import by_name
from shoal.strategies.replicas.sync import Sync, SyncParts
from shoal.strategies.strategy import Share, Strategy
from shoal.strategies.update import Update

STEPS, BATCH, INPUTS, OUTPUTS = 5, 12, 6, 5
BOUND = 1e-12
"""The largest difference from one machine, as a part of a tensor's largest value."""
OPTIMIZERS: dict[str, OptimizerConfig] = {
    "sgd": SgdConfig(lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": AdamConfig(lr=0.01),
}

MakeStrategy = Callable[[SyncParts], Strategy]


@dataclass(frozen=True)
class StrategySubject:
    """The strategy to check: how to build it, with how many workers, and whether it claims to equal one machine."""

    make: MakeStrategy
    sizes: Sequence[int]
    is_exact: bool = True
    limit_s: float = LIMIT_S


def examine_strategy(subject: StrategySubject) -> Iterator[Verdict]:
    """Check all clauses that apply, in order; a strategy that does not return ends the examination."""
    return examined(CLAUSES, subject, num_workers)


def shares_of(size: int) -> dict[str, tuple[int, ...]]:
    """Ways to divide a batch of 12 samples: evenly, unevenly, and with nothing for one worker.

    >>> shares_of(3)
    {'even': (4, 4, 4), 'uneven': (1, 1, 10), 'empty': (0, 1, 11)}
    """
    even = tuple(BATCH // size + (rank < BATCH % size) for rank in range(size))
    if size == 1:
        return {"even": even}
    uneven = (*[1] * (size - 1), BATCH - size + 1)
    return {"even": even, "uneven": uneven, "empty": (0, *uneven[1:-1], uneven[-1] + 1)}


def parts_for(group: Group, optimizer: str, seed: int = 0) -> SyncParts:
    """What a strategy is built from, as a run builds it: a network in float64 with weights from a seed."""
    draw = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(INPUTS, 8), nn.Tanh(), nn.Linear(8, OUTPUTS)).double()
    with torch.no_grad():
        for param in model.parameters():
            param.copy_(torch.randn(param.shape, generator=draw, dtype=torch.float64))
    loss, span = CrossEntropyConfig(), SpanRecorder(HostClock())
    layout = Whole(
        model, build_loss(loss), build_engine("torch", model, loss, span), span, replica=group.rank
    )
    update = Update(layout, lambda params: optim.build(OPTIMIZERS[optimizer], params))
    return SyncParts(layout, update, group, AllReduce(), Guard(group, AllReduce(), "stop"))


def share_of(step: int, shares: Sequence[int], rank: int) -> Share:
    """A worker's samples of a step, in two parts."""
    draw = torch.Generator().manual_seed(step)
    inputs = torch.randn(BATCH, INPUTS, generator=draw, dtype=torch.float64)
    labels = torch.randint(OUTPUTS, (BATCH,), generator=draw)
    start = sum(shares[:rank])
    mine = torch.arange(start, start + shares[rank])
    halves = mine.tensor_split(2) if len(mine) > 1 else [mine] * len(mine)
    batches = [Batch(inputs[half], labels[half], len(half)) for half in halves]
    return Share(batches, BATCH, len(mine), empty=lambda: Batch(inputs[:0], labels[:0], 0))


class State(NamedTuple):
    """What a worker holds after a step: the loss, and weights and moments under the names of one machine."""

    loss: float
    tensors: Mapping[str, Tensor]


def train(strategy: Strategy, shares: Sequence[int], steps: range = range(STEPS)) -> list[State]:
    """Train a few steps; the state after each."""
    states: list[State] = []
    for step in steps:
        loss = strategy.step(share_of(step, shares, strategy.data_rank), 0.05).loss.item()
        strategy.consolidate()
        states.append(State(loss, _held(strategy)))
    return states


def _held(strategy: Strategy) -> dict[str, Tensor]:
    pieces = [piece for piece in strategy.pieces() if piece.name.startswith(("model.", "optim."))]
    return {name: tensor.clone() for name, tensor in by_name(pieces).items()}


def _members(
    subject: StrategySubject, size: int, work: Callable[[Strategy], list[State]], optimizer: str
) -> list[list[State]]:
    def member(group: Group) -> list[State]:
        # Another seed on every worker: the strategy itself makes replicas start equal.
        return work(subject.make(parts_for(group, optimizer, seed=group.rank)))

    return _together(subject, size, member)


def _together(subject: StrategySubject, size: int, work: Callable[[Group], Value]) -> list[Value]:
    with warnings.catch_warnings():  # replicas begin with different weights on purpose
        warnings.filterwarnings("ignore", "the workers' initial parameters differed")
        return together_on(size, subject.limit_s, work)


# The clauses. The table at the end says what each requires.


def _trains(subject: StrategySubject, size: int) -> None:
    for kind, shares in shares_of(size).items():
        for rank, states in enumerate(_members(subject, size, lambda each, s=shares: train(each, s), "sgd")):
            for step, state in enumerate(states):
                if not all(tensor.isfinite().all() for tensor in state.tensors.values()):
                    raise Broken(
                        f"rank {rank} has a number that is not finite after step {step}, {kind} shares"
                    )


def _equals_one_machine(subject: StrategySubject, size: int) -> None:
    for optimizer in OPTIMIZERS:
        expected = train(Sync(parts_for(alone(), optimizer)), (BATCH,))
        for kind, shares in shares_of(size).items():
            for rank, states in enumerate(
                _members(subject, size, lambda each, s=shares: train(each, s), optimizer)
            ):
                for step, (state, right) in enumerate(zip(states, expected, strict=True)):
                    where = f"on rank {rank} after step {step}, {optimizer}, {kind} shares"
                    _compare(state, right, where)


def _compare(state: State, right: State, where: str) -> None:
    if abs(state.loss - right.loss) > BOUND * abs(right.loss):
        raise Broken(f"the loss is {state.loss:.9g}, but one machine's is {right.loss:.9g}, {where}")
    for name, tensor in right.tensors.items():
        if name not in state.tensors:
            raise Broken(f"'{name}' is missing {where}")
        far = (state.tensors[name] - tensor).abs().max() / tensor.abs().max().clamp(min=1e-300)
        if not far <= BOUND:
            raise Broken(f"'{name}' differs from one machine's by {far:.1e} of its largest value, {where}")


def _is_one_model(subject: StrategySubject, size: int) -> None:
    shares = shares_of(size)["even"]
    first, *others = _members(subject, size, lambda each: train(each, shares), "adam")
    for rank, states in enumerate(others, start=1):
        for step, (state, expected) in enumerate(zip(states, first, strict=True)):
            for name, tensor in expected.tensors.items():
                if name.startswith("model.") and not torch.equal(state.tensors[name], tensor):
                    raise Broken(
                        f"rank {rank} evaluates other weights than rank 0: '{name}' after step {step}"
                    )


def _goes_on(subject: StrategySubject, size: int) -> None:
    shares, half = shares_of(size)["even"], STEPS // 2

    def whole(strategy: Strategy) -> list[State]:
        return train(strategy, shares)

    def save(group: Group) -> dict[str, Tensor]:
        strategy = subject.make(parts_for(group, "adam", seed=group.rank))
        train(strategy, shares, range(half))
        saved = [piece for piece in strategy.pieces() if piece.is_saved]
        return {piece.name: piece.tensor.clone() for piece in saved}

    kept: dict[str, Tensor] = {}
    for each in reversed(_together(subject, size, save)):
        kept |= each  # rank 0's copy of what all have

    def resume(strategy: Strategy) -> list[State]:
        strategy.load(kept)
        return train(strategy, shares, range(half, STEPS))

    expected = _members(subject, size, whole, "adam")
    for rank, states in enumerate(_members(subject, size, resume, "adam")):
        for name, tensor in expected[rank][-1].tensors.items():
            if not torch.equal(states[-1].tensors[name], tensor):
                raise Broken(
                    f"'{name}' on rank {rank} is not what it is without the stop after step {half - 1}"
                )


CLAUSES: dict[str, Check] = {
    "trains": Check(
        "Five steps end, with finite numbers, also where a worker has no samples.",
        _trains,
        attrgetter("sizes"),
    ),
    "one machine": Check(
        f"After every step, loss, weights and moments are one machine's (≤ {BOUND:.0e}), for shares of any size.",
        _equals_one_machine,
        attrgetter("sizes"),
        attrgetter("is_exact"),
    ),
    "one model": Check(
        "All workers evaluate, save and export the same weights, to the bit.",
        _is_one_model,
        attrgetter("sizes"),
    ),
    "resume": Check(
        "A run that is stopped and resumed continues with the same bits.", _goes_on, attrgetter("sizes")
    ),
}
"""The contract of a strategy of whole replicas."""
