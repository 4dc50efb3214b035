"""Hogwild: one copy of the weights, updated by all workers without waiting."""

import pytest
import torch
from server_cases import strategy_of
from strategy_cases import OPTIMIZERS, on_threads, one_machine, rate, replica, share_of, state_of

from shoal.config.schema import ServerConfig
from shoal.errors import DivergedError
from shoal.parallel.strategy import Share

HOGWILD = ServerConfig(mode="hogwild")


@pytest.mark.parametrize(("optimizer", "clip_norm"), [("sgd", None), ("adam", None), ("adam", 0.5)])
def test_one_worker_alone_is_one_machine(optimizer, clip_norm):
    def work(group):
        strategy = strategy_of(group, HOGWILD, replica(OPTIMIZERS[optimizer], clip_norm=clip_norm))
        for step in range(10):
            strategy.step(share_of(strategy, step, (12,)), rate(step))
        return state_of(strategy)

    (found,) = on_threads(1, work)
    for name, tensor in one_machine(optimizer, clip_norm)[-1][0].items():
        assert torch.allclose(found[name], tensor, rtol=1e-12, atol=0)


def test_workers_that_take_turns_add_up_to_one_machine():
    """Both gradients are of the same weights, and both updates land in the one copy: the sum of plain SGD."""

    def work(group):
        strategy = strategy_of(group, HOGWILD, replica(OPTIMIZERS["gd"]))
        for step in range(10):
            mine = share_of(strategy, step, (7, 5))
            strategy._layout.gradients(mine)
            strategy._common.take_gradients()
            group.barrier().wait()
            for turn in range(2):
                if group.rank == turn:
                    strategy._update.without_clipping(rate(step))
                group.barrier().wait()
            strategy.consolidate()
        return {name: param.detach().clone() for name, param in strategy._layout.params.items()}

    first, second = on_threads(2, work)
    expected = one_machine("gd")[-1][0]
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), "one copy"
        assert torch.allclose(tensor, expected[f"model.{name}"], rtol=1e-12, atol=1e-15)


def test_all_stop_after_the_same_step_though_they_do_not_wait():
    def work(group):
        strategy, steps = strategy_of(group, HOGWILD, replica(OPTIMIZERS["gd"])), 0
        for step in range(1000):
            mine = share_of(strategy, step % 10, (4, 4, 4))
            signal = 15 if group.rank == 1 and step >= 3 else 0
            steps += 1
            if strategy.step(Share(mine.parts, 12, 4, signal), 0.01).stop_signal:
                break
        strategy.consolidate()
        return steps

    steps = on_threads(3, work)
    assert len(set(steps)) == 1
    assert 4 <= steps[0] < 1000


def test_a_gradient_that_is_not_finite_does_not_reach_the_weights():
    def work(group):
        strategy = strategy_of(group, HOGWILD, replica(OPTIMIZERS["gd"]))
        mine = share_of(strategy, 0, (6, 6))
        if group.rank == 1:
            mine.parts[0].inputs[0, 0] = torch.nan
            with pytest.raises(DivergedError, match="the norm of rank 1's gradient is nan"):
                strategy.step(mine, 0.1)
        else:
            strategy.step(mine, 0.1)
        group.barrier().wait()
        return all(param.isfinite().all() for param in strategy._layout.params.values())

    assert on_threads(2, work) == [True, True]
