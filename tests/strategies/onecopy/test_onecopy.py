"""`onecopy` beyond equality: one copy, the bits of `ddp`, and what it refuses."""

import pytest
import torch
from strategy_cases import OPTIMIZERS, STRATEGIES, made, on_threads, replica, share, share_of, train

from shoal.config.sections.optimizer import AdamConfig
from shoal.config.sections.sync import OneCopyConfig
from shoal.errors import ConfigError, DivergedError
from shoal.strategies.onecopy.onecopy import OneCopySync

READABLE = AdamConfig(lr=0.01, fast=False)


def float32(optimizer, clip_norm=None):
    mine = replica(optimizer, clip_norm=clip_norm)
    mine.model.float()
    mine.layout.zero = mine.layout.zero.float()
    return mine


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("clip_norm", [None, 0.01])
def test_it_has_the_bits_of_ddp(size, clip_norm):
    def work(name):
        def member(group):
            strategy = STRATEGIES[name](float32(READABLE, clip_norm), group)
            shares = (12 - (size - 1), *[1] * (size - 1))
            for step in range(5):
                strategy.step(share_of(strategy, step, shares, dtype=torch.float32), 0.05)
            return {
                piece.name: piece.tensor for piece in strategy.pieces() if piece.name.startswith("model.")
            }

        return on_threads(size, member)[0]

    ddp, onecopy = work("ddp"), work("onecopy")
    assert ddp.keys() == onecopy.keys()
    assert all(torch.equal(ddp[name], onecopy[name]) for name in ddp)


def test_all_workers_have_the_same_memory_and_share_the_moments():
    def work(group):
        mine = replica(OPTIMIZERS["adam"])
        strategy = STRATEGIES["onecopy"](mine, group)
        train(strategy, (6, 6), steps=1)
        moments = [piece for piece in strategy.pieces() if piece.name.endswith("exp_avg")]
        return [param.data_ptr() for param in mine.params.values()], sum(
            each.tensor.numel() for each in moments
        )

    (first, mine), (second, others) = on_threads(2, work)
    assert first == second
    assert mine + others == sum(param.numel() for param in replica(OPTIMIZERS["adam"]).params.values())
    assert mine
    assert others


def test_a_bad_number_never_reaches_the_weights():
    def work(group):
        mine = replica(OPTIMIZERS["adam"])
        strategy = STRATEGIES["onecopy"](mine, group)
        before = [param.detach().clone() for param in mine.params.values()]
        bad = share(0, 6 * group.rank, 6)
        if group.rank == 1:
            bad.parts[0].inputs.fill_(torch.inf)
        with pytest.raises(DivergedError, match="rank 1"):
            strategy.step(bad, 0.1)
        group.barrier().wait()
        return all(torch.equal(old, new) for old, new in zip(before, mine.params.values(), strict=True))

    assert on_threads(2, work) == [True, True]


def test_a_parameter_without_a_gradient_is_named_or_left_alone():
    def work(unused):
        def member(group):
            mine = replica(OPTIMIZERS["adamw"])
            extra = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
            mine.layout.params["extra"] = extra
            strategy = made(OneCopySync, OneCopyConfig(unused=unused), mine, group)
            strategy.step(share(0, 6 * group.rank, 6), 0.1)
            return extra.tolist()

        return on_threads(2, member)

    assert work("zero") == [[1.0] * 3] * 2
    with pytest.raises(ConfigError, match="no gradient reached 'extra'"):
        work("refuse")


class NotElementwise(torch.optim.Optimizer):
    """Divides by the norm of the whole parameter."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})


def test_an_optimizer_that_is_not_elementwise_is_named():
    def work(group):
        mine = replica(OPTIMIZERS["sgd"])
        mine.update = type(mine.update)(mine.layout, NotElementwise)
        STRATEGIES["onecopy"](mine, group)

    with pytest.raises(ConfigError, match="NotElementwise is not known to update each element on its own"):
        on_threads(2, work)


def test_a_group_without_shared_memory_is_refused():
    def work(group):
        group.maps_memory, group.kind = False, "gloo"
        STRATEGIES["onecopy"](replica(OPTIMIZERS["sgd"]), group)

    with pytest.raises(ConfigError, match="a group of kind gloo cannot offer"):
        on_threads(2, work)
