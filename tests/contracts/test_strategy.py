"""Every strategy equals training on one machine: step by step, in float64, on uneven and empty shares too."""

import threading

import pytest
import torch
from torch import nn

from shoal import optim
from shoal.comm.threads import ThreadGroup
from shoal.config.schema import (
    AdamConfig,
    AdamWConfig,
    CrossEntropyConfig,
    DdpConfig,
    DpConfig,
    GdConfig,
    NaiveConfig,
    SgdConfig,
)
from shoal.data.dataset import Batch
from shoal.events.spans import HostClock, SpanRecorder
from shoal.models import build_loss
from shoal.parallel.dp import Dp
from shoal.parallel.engine import build_engine
from shoal.parallel.exchange.linear import AllReduce
from shoal.parallel.guard import Guard
from shoal.parallel.replica import Replica
from shoal.parallel.single import Single
from shoal.parallel.strategy import Share
from shoal.parallel.sync.ddp import Ddp
from shoal.parallel.sync.naive import Naive

STEPS = 10
BATCH = 12
STRATEGIES = {
    "naive": lambda replica, group: made(Naive, NaiveConfig(), replica, group),
    # Buckets of 100 bytes: this model's gradients are three of them.
    "ddp": lambda replica, group: made(
        Ddp, DdpConfig(bucket_mib=1e-4, first_bucket_mib=1e-5), replica, group
    ),
    "dp": lambda replica, group: made(Dp, DpConfig(), replica, group),
}
OPTIMIZERS = {
    "gd": GdConfig(lr=0.1),
    "sgd": SgdConfig(lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": AdamConfig(lr=0.01),
    "adamw": AdamWConfig(lr=0.01),
}
SHARES = {
    1: {"even": (12,)},
    2: {"even": (6, 6), "uneven": (11, 1), "empty": (0, 12)},
    3: {"even": (4, 4, 4), "uneven": (7, 0, 5)},
    4: {"even": (3, 3, 3, 3), "uneven": (1, 8, 1, 2)},
    8: {"uneven": (2, 0, 1, 3, 0, 4, 1, 1)},
}


def replica(optimizer, seed=0, clip_norm=None, engine="torch", dtype=torch.float64):
    draw = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5)).to(dtype)
    with torch.no_grad():
        for param in model.parameters():
            param.copy_(torch.randn(param.shape, generator=draw, dtype=dtype))
    loss = CrossEntropyConfig()
    span = SpanRecorder(HostClock())
    made = build_engine(engine, model, loss, span)
    return Replica(
        model, build_loss(loss), made, optim.build(optimizer, made.params.values()), clip_norm, span
    )


def made(strategy, config, replica, group, exchange=None, on_nonfinite="stop"):
    """A strategy as `train.build` makes it."""
    exchange = exchange or AllReduce()
    return strategy(replica, group, exchange, Guard(group, exchange, on_nonfinite), config)


def samples():
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(STEPS * BATCH, 6, generator=draw, dtype=torch.float64)
    return inputs, torch.randint(5, (STEPS * BATCH,), generator=draw)


def share(step, start, count, parts):
    inputs, labels = samples()
    first = step * BATCH + start
    cuts = torch.arange(first, first + count).split(max(1, -(-count // parts))) if count else []
    return Share([Batch(inputs[cut], labels[cut], len(cut)) for cut in cuts], BATCH, count)


def train(strategy, shares, parts=1):
    """All pieces after every step, as this worker holds them, and the losses."""
    history = []
    if strategy.data_size == 1:
        shares = (sum(shares),)  # it is handed the whole batch, and divides it itself
    start = sum(shares[: strategy.data_rank])
    for step in range(STEPS):
        mine = share(step, start, shares[strategy.data_rank], parts)
        loss = strategy.step(mine, 0.05 / (step + 1)).loss
        history.append(({name: piece.clone() for name, piece in strategy.pieces().items()}, loss.item()))
    return history


def on_threads(size, work):
    """What every member's `work(group)` gave."""
    results, errors = [None] * size, []

    def member(group):
        try:
            results[group.rank] = work(group)
        except BaseException as error:
            errors.append(error)
            group.close()

    threads = [threading.Thread(target=member, args=(group,)) for group in ThreadGroup.world(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    return results


CASES = [(size, kind) for size, kinds in SHARES.items() for kind in kinds]


@pytest.mark.parametrize("clip_norm", [None, 0.5])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("size", "kind"), CASES)
@pytest.mark.parametrize("name", STRATEGIES)
def test_equals_one_machine(name, size, kind, optimizer, clip_norm):
    expected = train(Single(replica(OPTIMIZERS[optimizer], clip_norm=clip_norm)), (BATCH,))

    def work(group):
        # Another seed on every worker: the strategy itself makes them start alike.
        mine = replica(OPTIMIZERS[optimizer], seed=group.rank, clip_norm=clip_norm)
        return train(STRATEGIES[name](mine, group), SHARES[size][kind], parts=2)

    assert_equal(on_threads(size, work), expected)


def assert_equal(members, expected):
    """Every worker has, after every step, what one machine has; and all of them the same bits."""
    for step in range(STEPS):
        pieces, loss = expected[step]
        for member in members:
            its_pieces, its_loss = member[step]
            assert its_loss == pytest.approx(loss, rel=1e-12)
            # Each worker has the pieces that it owns, rank 0 at least those of a checkpoint.
            assert its_pieces.keys() <= members[0][step][0].keys() == pieces.keys()
            for key, piece in ((key, pieces[key]) for key in its_pieces):
                scale = piece.abs().max().clamp(min=1e-300)
                assert (its_pieces[key] - piece).abs().max() / scale <= 1e-12, f"{key} after step {step}"
                assert torch.equal(its_pieces[key], members[0][step][0][key]), "workers hold different bits"


@pytest.mark.parametrize(("size", "kind"), CASES)
@pytest.mark.parametrize(
    "config",
    [
        NaiveConfig(aggregate="parameters"),
        NaiveConfig(aggregate="parameters", combine="weighted_mean"),
        NaiveConfig(combine="weighted_mean"),
    ],
    ids=["parameters", "weighted parameters", "weighted gradients"],
)
def test_other_ways_to_the_same_sgd(config, size, kind):
    expected = train(Single(replica(OPTIMIZERS["sgd"])), (BATCH,))

    def work(group):
        return train(made(Naive, config, replica(OPTIMIZERS["sgd"]), group), SHARES[size][kind], parts=2)

    assert_equal(on_threads(size, work), expected)


@pytest.mark.parametrize("engine", ["tape", "static"])
@pytest.mark.parametrize("name", ["naive", "ddp"])
def test_our_own_engines_train_under_it_too(name, engine):
    expected = train(Single(replica(OPTIMIZERS["adam"])), (BATCH,))

    def work(group):
        return train(STRATEGIES[name](replica(OPTIMIZERS["adam"], engine=engine), group), (7, 5))

    for member in on_threads(2, work):
        for key, piece in expected[-1][0].items():
            scale = piece.abs().max().clamp(min=1e-300)
            assert (member[-1][0][key] - piece).abs().max() / scale <= 1e-10


def test_a_parameter_no_sample_reaches_is_left_alone():
    def work(group):
        mine = replica(OPTIMIZERS["adamw"])
        unused = nn.Parameter(torch.ones(3, dtype=torch.float64))
        mine.params["unused"] = unused
        strategy = STRATEGIES["naive"](mine, group)
        strategy.step(share(0, 6 * group.rank, 6, 1), 0.1)
        return unused.grad

    assert on_threads(2, work) == [None, None]


def test_the_test_can_fail():
    """Averaging where one must sum is the classic error: the comparison sees it."""

    class Averaging(Naive):
        def _sum_gradients(self, grads, part):
            super()._sum_gradients(grads, part)
            for grad in grads:
                grad /= self.data_size

    expected = train(Single(replica(OPTIMIZERS["sgd"])), (BATCH,))
    member = on_threads(
        2, lambda g: train(made(Averaging, NaiveConfig(), replica(OPTIMIZERS["sgd"]), g), (6, 6))
    )[0]
    key = "model.0.weight"
    assert (member[0][0][key] - expected[0][0][key]).abs().max() > 1e-6
