"""What the contracts of strategies share: a small model, batches, strategies as `train.build` makes them, worlds."""

import functools
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from shoal import optim
from shoal.comm.alone import alone
from shoal.comm.threads.group import run_threads
from shoal.config.sections.model import CrossEntropyConfig
from shoal.config.sections.optimizer import AdamConfig, AdamWConfig, GdConfig, SgdConfig
from shoal.data.dataset import Batch
from shoal.events.spans import HostClock, SpanRecorder
from shoal.models import build_loss
from shoal.strategies.ddp.ddp import Ddp
from shoal.strategies.ddp.settings import DdpConfig
from shoal.strategies.dp import Dp
from shoal.strategies.exchange.exchange import AllReduce
from shoal.strategies.gradient_engine import build_engine
from shoal.strategies.guard import Guard
from shoal.strategies.layout.whole import Whole
from shoal.strategies.leaf_sums import LeafSums
from shoal.strategies.local.local import LocalSync
from shoal.strategies.local.settings import LocalConfig
from shoal.strategies.naive import Naive
from shoal.strategies.onecopy.onecopy import OneCopySync
from shoal.strategies.onecopy.settings import OneCopyConfig
from shoal.strategies.pieces.piece import by_name
from shoal.strategies.replicas.sync import Sync, SyncParts
from shoal.strategies.settings import DpConfig, NaiveConfig
from shoal.strategies.strategy import Share, TrainingClock
from shoal.strategies.update import Update
from shoal.strategies.zero.settings import ZeroConfig
from shoal.strategies.zero.zero import Zero

STEPS, BATCHES = 6, 10
BATCH = 12
INPUTS, OUTPUTS = 6, 5


@dataclass
class Copy:
    """One copy of a model and its update: what syncs are made of, and what their results are compared with."""

    layout: Whole
    update: Update

    @property
    def model(self):
        return self.layout.model

    @property
    def params(self):
        return self.layout.params

    def pieces(self):
        return by_name(self.layout.pieces() + self.update.pieces())

    def load(self, saved):
        self.layout.load(saved)
        self.update.load(saved)


def copy_of(
    model, optimizer, clip_norm=None, engine="torch", precision="float32", along_tree=False, **others
):
    loss, span = CrossEntropyConfig(), SpanRecorder(HostClock())
    made = build_engine(engine, model, loss, span, precision)
    leaf_sums = LeafSums(model, made.params, span) if along_tree else None
    layout = Whole(model, build_loss(loss), made, span, leaf_sums=leaf_sums, **others)
    return Copy(layout, Update(layout, lambda params: optim.build(optimizer, params), clip_norm))


def made(sync, config, copy, group, exchange=None, on_nonfinite="stop", training_clock=None):
    """A strategy as `train.build` makes it."""
    exchange = exchange or AllReduce()
    guard = Guard(group, exchange, on_nonfinite, copy.layout.sharded_over)
    clock = training_clock or TrainingClock()
    return sync(SyncParts(copy.layout, copy.update, group, exchange, guard, training_clock=clock), config)


def single(copy):
    """The reference: one copy, one worker."""
    return made(lambda parts, config: Sync(parts), None, copy, alone())


BUCKETS = DdpConfig(bucket_mib=1e-4, first_bucket_mib=1e-5)
"""Buckets of 100 bytes: the model's gradients are three of them."""


UNIT_MIB = 1e-4


def early(replica, group):
    """ddp where buckets go while backward is still at work, as on groups that say so."""
    group.overlaps = True
    return made(Ddp, BUCKETS, replica, group)


def zero(stage, replica, group):
    """zero in units of one layer."""
    return made(Zero, ZeroConfig(stage=stage, unit_mib=UNIT_MIB), replica, group)


def gathered(replica, group):
    """zero whose parameters are gathered before use, as on groups without common memory."""
    group.maps_memory, group.overlaps = False, True
    return zero(3, replica, group)


STRATEGIES = {
    "naive": lambda replica, group: made(Naive, NaiveConfig(), replica, group),
    "ddp": lambda replica, group: made(Ddp, BUCKETS, replica, group),
    "ddp, early": early,
    "onecopy": lambda replica, group: made(OneCopySync, OneCopyConfig(), replica, group),
}
for stage in (1, 2, 3):
    STRATEGIES[f"zero {stage}"] = partial(zero, stage)
STRATEGIES["zero 3, gathered"] = gathered
SYNCS = dict(STRATEGIES)
"""The syncs, which take any layout that the table of pairs allows."""
STRATEGIES["dp"] = lambda replica, group: made(Dp, DpConfig(), replica, group)


def local(replica, group, **options):
    """local that averages after every step: exact where the update is linear in the gradient."""
    return made(LocalSync, LocalConfig(**{"every": 1, **options}), replica, group)


OPTIMIZERS = {
    "gd": GdConfig(lr=0.1),
    "sgd": SgdConfig(lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": AdamConfig(lr=0.01),
    "adamw": AdamWConfig(lr=0.01),
}
SHARES = {
    1: {"whole": (12,)},
    2: {"even": (6, 6), "uneven": (11, 1), "empty": (0, 12)},
    3: {"even": (4, 4, 4), "uneven": (7, 3, 2), "empty": (7, 0, 5)},
    4: {"even": (3, 3, 3, 3), "uneven": (1, 8, 1, 2), "empty": (0, 6, 0, 6)},
    8: {"even": (2, 2, 2, 2, 1, 1, 1, 1), "empty": (2, 0, 1, 3, 0, 4, 1, 1)},
}
CASES = [(size, kind) for size, kinds in SHARES.items() for kind in kinds]


def network():
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.ReLU(), nn.Linear(8, OUTPUTS))


def replica(
    optimizer,
    seed=0,
    clip_norm=None,
    engine="torch",
    dtype=torch.float64,
    network=network,
    spread=1.0,
    along_tree=False,
):
    draw = torch.Generator().manual_seed(seed)
    model = network().to(dtype)
    with torch.no_grad():
        for param in model.parameters():
            param.copy_(spread * torch.randn(param.shape, generator=draw, dtype=torch.float64))
    return copy_of(model, optimizer, clip_norm, engine, along_tree=along_tree)


@functools.cache
def samples():
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(BATCHES * BATCH, INPUTS, generator=draw, dtype=torch.float64)
    return inputs, torch.randint(OUTPUTS, (BATCHES * BATCH,), generator=draw)


def share(step, start, count, parts=1, dtype=torch.float64):
    """`count` samples of a step's batch, from `start` on, in so many parts."""
    inputs, labels = samples()
    first = step * BATCH + start
    cuts = torch.arange(first, first + count).split(max(1, -(-count // parts))) if count else []
    batches = [Batch(inputs[cut].to(dtype), labels[cut], len(cut)) for cut in cuts]
    return Share(batches, BATCH, count, empty=lambda: Batch(inputs[:0].to(dtype), labels[:0], 0))


def share_of(strategy, step, shares, parts=1, dtype=torch.float64):
    """A strategy's own share of a step; who is alone to its data is handed the whole batch, and divides it itself."""
    shares = (sum(shares),) if strategy.data_size == 1 else shares
    rank = strategy.data_rank
    return share(step, sum(shares[:rank]), shares[rank], parts, dtype)


def rate(step):
    return 0.05 / (step + 1)


def one_machines(pieces):
    """The pieces that `single` has, too."""
    return [piece for piece in pieces if not piece.name.startswith(("local.", "server."))]


def state_of(strategy):
    """What a worker holds of one machine's state, copied."""
    return {name: tensor.clone() for name, tensor in by_name(one_machines(strategy.pieces())).items()}


def train(strategy, shares, parts=1, steps=STEPS):
    """All pieces after every step, as this worker holds them, with their places, and the losses."""
    history = []
    for step in range(steps):
        loss = strategy.step(share_of(strategy, step, shares, parts), rate(step)).loss
        strategy.consolidate()
        places = {piece.name: piece.place for piece in one_machines(strategy.pieces())}
        history.append((state_of(strategy), loss.item(), places))
    return history


@functools.cache
def one_machine(optimizer, clip_norm=None, network=network, parts=1):
    """What `single` has after every step."""
    return train(
        single(replica(OPTIMIZERS[optimizer], clip_norm=clip_norm, network=network)), (BATCH,), parts
    )


def on_threads(size, work):
    """What every member's `work(group)` gave."""
    return run_threads(size, work)


def distance(piece, other):
    """Largest difference, as a part of the largest value: element-wise ratios are meaningless near zero."""
    return ((piece - other).abs().max() / other.abs().max().clamp(min=1e-300)).item()


def assert_equal(members, expected):
    """Every worker has, after every step, what one machine has; what several have has the same bits."""
    for step, (pieces, loss, _) in enumerate(expected):
        # In float64: counts, which are integers, have no nan.
        held = {name: torch.full_like(each, torch.nan, dtype=torch.float64) for name, each in pieces.items()}
        for rank, member in enumerate(members):
            its_pieces, its_loss, places = member[step]
            assert abs(its_loss - loss) <= 1e-12 * abs(loss), f"rank {rank}'s loss of step {step}"
            assert its_pieces.keys() <= pieces.keys()
            for key, tensor in its_pieces.items():
                so_far = places[key].read(held[key], tuple(tensor.shape))
                same = (so_far == tensor) | so_far.isnan()
                assert same.all(), f"rank {rank} has other bits in {key}, step {step}"
                places[key].write(held[key], tensor)
        for key, tensor in held.items():
            # Together the workers have all pieces of a checkpoint: what no worker has is still nan.
            assert distance(tensor, pieces[key]) <= 1e-12, f"{key} after step {step}"


def assert_close_states(state, expected, when):
    """The same names, and per tensor at most 1e-12 of its largest value apart."""
    assert state.keys() == expected.keys()
    for name, tensor in expected.items():
        assert distance(state[name], tensor) <= 1e-12, f"{name} {when}"
