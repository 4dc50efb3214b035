"""Compression with neutral settings equals one machine, by the code of any other setting; state survives a restart."""

import pytest
import torch
from strategy_cases import (
    BUCKETS,
    OPTIMIZERS,
    SHARES,
    assert_equal,
    distance,
    made,
    on_threads,
    one_machine,
    rate,
    replica,
    share_of,
    state_of,
    train,
)

from shoal.config.sections.compression import CompressedConfig
from shoal.config.sections.sync import NaiveConfig
from shoal.strategies.ddp.ddp import Ddp
from shoal.strategies.exchange.compressed import Compressed
from shoal.strategies.exchange.exchange import TrainingClock
from shoal.strategies.naive import Naive

pytestmark = pytest.mark.filterwarnings(
    "ignore:the workers' initial parameters differed", "ignore:--exchange.rank 99", "ignore:the norm of rank"
)
NEUTRAL = {
    "none": CompressedConfig(codec="none"),
    "topk": CompressedConfig(codec="topk", ratio=1.0),
    "randomk": CompressedConfig(codec="randomk", ratio=1.0),
    "randomk, scaled": CompressedConfig(codec="randomk", ratio=1.0, feedback=False),
    "threshold": CompressedConfig(codec="threshold", threshold=0.0, ratio=1.0),
    "average": CompressedConfig(codec="average", ratio=1.0),
    "dgc": CompressedConfig(codec="dgc", ratio=1.0),
    "powersgd": CompressedConfig(codec="powersgd", rank=99),
}
STRATEGIES = {"naive": (Naive, NaiveConfig()), "ddp": (Ddp, BUCKETS), "ddp, early": (Ddp, BUCKETS)}


def under(strategy, config, group, optimizer="sgd"):
    sync, settings = STRATEGIES[strategy]
    clock = TrainingClock()
    group.overlaps = strategy == "ddp, early"
    return made(sync, settings, replica(OPTIMIZERS[optimizer]), group, Compressed(config, clock)), clock


def weights(history):
    """Without the state of the exchange, which one machine does not have."""
    return [
        ({name: piece for name, piece in pieces.items() if not name.startswith("exchange.")}, loss, places)
        for pieces, loss, places in history
    ]


CASES = [
    *(("ddp", codec, 3, "empty") for codec in NEUTRAL),
    *(("naive", codec, 2, "uneven") for codec in NEUTRAL),
    *(("ddp, early", codec, 2, "uneven") for codec in ("topk", "dgc", "powersgd")),
    *(("naive", codec, 1, "whole") for codec in ("topk", "dgc", "powersgd")),
]
"""Every codec on whole gradients and in buckets; those with state of their own also early, and alone."""


@pytest.mark.parametrize(("strategy", "codec", "size", "kind"), CASES)
def test_neutral_settings_equal_one_machine(strategy, codec, size, kind):
    def work(group):
        return weights(train(under(strategy, NEUTRAL[codec], group)[0], SHARES[size][kind], parts=2))

    assert_equal(on_threads(size, work), one_machine("sgd"))


def test_32_bits_equal_one_machine_up_to_their_rounding():
    """No element is off by more than 2⁻³⁰ of its block's norm in any step."""

    def work(group):
        return train(under("ddp", CompressedConfig(codec="qsgd", bits=32), group)[0], (6, 6))

    for member in on_threads(2, work):
        for name, piece in one_machine("sgd")[-1][0].items():
            assert distance(member[-1][0][name], piece) <= 1e-7


RESTORED = [("ddp", codec) for codec in ("topk", "dgc", "powersgd", "qsgd")]
RESTORED += [("naive", "dgc"), ("ddp, early", "powersgd")]


@pytest.mark.parametrize(("strategy", "codec"), RESTORED)
def test_a_restored_run_goes_on_with_the_same_bits(strategy, codec):
    config = CompressedConfig(codec=codec)

    def steps(one, clock, which):
        for step in which:
            clock.step = step
            one.step(share_of(one, step, (7, 5)), rate(step))

    def whole(group):
        one, clock = under(strategy, config, group, "adam")
        steps(one, clock, range(4))
        return state_of(one)

    def halves(group):
        one, clock = under(strategy, config, group, "adam")
        steps(one, clock, range(2))
        saved = state_of(one)
        again, clock = under(strategy, config, group, "adam")
        again.load(saved)
        steps(again, clock, range(2, 4))
        return state_of(again)

    for straight, restored in zip(on_threads(2, whole), on_threads(2, halves), strict=True):
        assert straight.keys() == restored.keys()
        assert all(torch.equal(piece, restored[name]) for name, piece in straight.items())
        assert any(name.startswith("exchange.") for name in straight) == (codec != "qsgd")
