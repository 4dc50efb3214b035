"""With pruned weights every strategy that prunes equals one machine: step by step, in float64."""

import pytest
from strategy_cases import (
    BATCH,
    BUCKETS,
    OPTIMIZERS,
    SHARES,
    assert_equal,
    copy_of,
    made,
    on_threads,
    replica,
    share_of,
    single,
    state_of,
)

from shoal import optim
from shoal.config.sections.prune import MagnitudeConfig, MovementConfig
from shoal.prune.masks import WeightMasks
from shoal.strategies.ddp.ddp import Ddp
from shoal.strategies.exchange.exchange import AllReduce
from shoal.strategies.exchange.kept import KeptOnly
from shoal.strategies.naive import Naive
from shoal.strategies.settings import NaiveConfig
from shoal.strategies.update import Update

pytestmark = pytest.mark.filterwarnings(
    "ignore:the workers' initial parameters differed", "ignore:the norm of rank"
)
PRUNED_AT = {2: 0.5, 5: 1.0}
"""Steps before which masks are chosen, with the part of the sparsity."""
CONFIGS = {
    "magnitude": MagnitudeConfig(sparsity=0.7),
    "movement": MovementConfig(sparsity=0.7, scope="layer"),
    "pattern": MagnitudeConfig(pattern="1:2"),
    "nothing": MagnitudeConfig(sparsity=0.0),
}


def pruned(config, optimizer, clip_norm, seed=0):
    """A replica whose update has masks, and the masks."""
    copy = replica(OPTIMIZERS[optimizer], seed=seed)
    masks = WeightMasks(copy.layout.params, config)
    make = lambda params: optim.build(OPTIMIZERS[optimizer], params)  # noqa: E731
    copy.update = Update(copy.layout, make, clip_norm, masks=masks)
    return copy, masks


def train(strategy, masks, shares):
    history = []
    for step in range(8):
        if step in PRUNED_AT:
            masks.prune(PRUNED_AT[step])
        loss = strategy.step(share_of(strategy, step, shares, 2), 0.05).loss
        state = {name: tensor.double() for name, tensor in state_of(strategy).items()}  # masks are of bool
        places = {piece.name: piece.place for piece in strategy.pieces()}
        history.append((state, loss.item(), places))
    return history


CASES = [
    *((sync, "magnitude", "sgd", 0.5, kind) for sync in ("naive", "ddp", "ddp, early") for kind in SHARES[3]),
    *(("ddp", config, "sgd", 0.5, "uneven") for config in CONFIGS if config != "magnitude"),
    *((sync, config, "adamw", None, "empty") for sync in ("naive", "ddp, early") for config in CONFIGS),
]
"""Every sync with every kind of shares, and with every way to choose masks under another optimizer."""


@pytest.mark.parametrize(("sync", "config", "optimizer", "clip_norm", "kind"), CASES)
def test_equals_one_machine(sync, config, optimizer, clip_norm, kind):
    def work(group):
        copy, masks = pruned(CONFIGS[config], optimizer, clip_norm, seed=group.rank)
        exchange = KeptOnly(AllReduce(), masks)
        group.overlaps = sync == "ddp, early"
        chosen, settings = (Naive, NaiveConfig()) if sync == "naive" else (Ddp, BUCKETS)
        return train(made(chosen, settings, copy, group, exchange), masks, SHARES[3][kind])

    copy, masks = pruned(CONFIGS[config], optimizer, clip_norm)
    assert_equal(on_threads(3, work), train(single(copy), masks, (BATCH,)))
    if config != "nothing":
        assert 0 < masks.sparsity < 1


def test_sparsity_0_gives_the_bits_of_no_pruning():
    copy, masks = pruned(CONFIGS["nothing"], "sgd", 0.5)
    plain = copy_of(replica(OPTIMIZERS["sgd"]).model, OPTIMIZERS["sgd"], 0.5)

    class Never:
        def prune(self, part):
            pass

    first, second = train(single(copy), masks, (BATCH,)), train(single(plain), Never(), (BATCH,))
    assert masks.version == 2
    for (state, loss, _), (expected, expected_loss, _) in zip(first, second, strict=True):
        assert loss == expected_loss
        assert all((state[name] == tensor).all() for name, tensor in expected.items())
