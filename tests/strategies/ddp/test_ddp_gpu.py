"""`ddp` on a GPU: the host does not wait for a step, and a bad number still never reaches the weights."""

import math
import warnings

import pytest
import torch
from strategy_cases import copy_of, made, network, on_threads

from shoal.config.sections.optimizer import AdamConfig, SgdConfig
from shoal.config.sections.sync import DdpConfig
from shoal.data.dataset import Batch
from shoal.errors import DivergedError
from shoal.strategies.ddp.ddp import Ddp
from shoal.strategies.pieces.piece import by_name
from shoal.strategies.strategy import Share

pytestmark = pytest.mark.gpu


def share(rank, stop_signal=0, bad=False):
    draw = torch.Generator().manual_seed(rank)
    inputs = torch.randn(8, 6, generator=draw)
    if bad:
        inputs[0, 0] = math.nan
    batch = Batch(inputs.cuda(), torch.arange(8, device="cuda") % 5, 8)
    return Share([batch], 16, 8, stop_signal)


def strategy_of(group, optimizer):
    torch.manual_seed(0)
    return made(Ddp, DdpConfig(), copy_of(network().float().cuda(), optimizer), group)


def weights(strategy):
    return {
        name: tensor.clone()
        for name, tensor in by_name(strategy.pieces()).items()
        if name.startswith("model.")
    }


@pytest.mark.parametrize("optimizer", [AdamConfig(lr=0.01), SgdConfig(lr=0.1, momentum=0.9)])
def test_the_device_leaves_a_bad_update_out_and_the_host_hears_of_it_later(optimizer):
    def work(group):
        strategy = strategy_of(group, optimizer)
        good = strategy.step(share(group.rank, stop_signal=15 if group.rank else 0), 0.1)
        before = weights(strategy)
        bad = strategy.step(share(group.rank, bad=group.rank == 1), 0.1)
        after = weights(strategy)
        assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
        strategy.step(share(group.rank), 0.1)
        assert any(not torch.equal(weights(strategy)[name], tensor) for name, tensor in after.items())
        assert good.settle() == 15
        with pytest.raises(DivergedError, match="rank 1's gradient is nan"):
            bad.settle()

    on_threads(2, work)


@pytest.mark.parametrize(
    ("optimizer", "waits"), [(AdamConfig(fast=True), False), (AdamConfig(fast=False), True)]
)
def test_the_host_waits_only_for_an_optimizer_that_cannot_be_masked(optimizer, waits):
    def work(group):
        strategy = strategy_of(group, optimizer)
        mine = share(group.rank)
        return [strategy.step(mine, 0.1).settle is None for _ in range(3)]

    assert on_threads(2, work) == [[waits] * 3] * 2


def test_a_step_alone_makes_no_synchronising_call():
    """With one worker all of it runs on the device; torch itself reports calls that wait for it."""

    def work(group):
        strategy = strategy_of(group, AdamConfig(lr=0.01))
        mine = share(0)
        strategy.step(mine, 0.1)
        torch.cuda.set_sync_debug_mode("error")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                strategy.step(mine, 0.1)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    on_threads(1, work)
