"""Hogwild: one copy of the weights, updated by all workers without waiting."""

import threading

import pytest
import torch
from server_cases import strategy_of
from strategy_cases import OPTIMIZERS, STEPS, on_threads, one_machine, rate, replica, share_of, state_of

from shoal.config.sections.server import ServerConfig
from shoal.errors import DivergedError
from shoal.strategies.strategy import Share

HOGWILD = ServerConfig(mode="hogwild")


@pytest.mark.parametrize(("optimizer", "clip_norm"), [("sgd", None), ("adam", None), ("adam", 0.5)])
def test_one_worker_alone_is_one_machine(optimizer, clip_norm):
    def work(group):
        strategy = strategy_of(group, HOGWILD, replica(OPTIMIZERS[optimizer], clip_norm=clip_norm))
        for step in range(STEPS):
            strategy.step(share_of(strategy, step, (12,)), rate(step))
        return state_of(strategy)

    (found,) = on_threads(1, work)
    for name, tensor in one_machine(optimizer, clip_norm)[-1][0].items():
        assert torch.allclose(found[name], tensor, rtol=1e-12, atol=0)


def test_workers_that_take_turns_add_up_to_one_machine():
    """Both gradients are of the same weights, and both updates land in the one copy: the sum of plain SGD."""

    def work(group):
        strategy = strategy_of(group, HOGWILD, replica(OPTIMIZERS["gd"]))
        for step in range(STEPS):
            mine = share_of(strategy, step, (7, 5))
            strategy._layout.gradients(mine)
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


def test_a_stop_signal_after_the_fastest_has_ended_its_epoch_stops_all_after_the_next_step():
    has_ended = threading.Event()

    def work(group):
        strategy = strategy_of(group, HOGWILD, replica(OPTIMIZERS["gd"]))
        mine, signal = share_of(strategy, 0, (6, 6)), 15 * group.rank
        if group.rank == 0:
            strategy.step(mine, 0.01)
            has_ended.set()
        else:
            has_ended.wait()
            assert not strategy.step(Share(mine.parts, 12, 6, signal), 0.01).stop_signal
        loss = strategy.agree_on_loss(1.0)
        strategy.consolidate()
        return loss, strategy.step(Share(mine.parts, 12, 6, signal), 0.01).stop_signal

    assert on_threads(2, work) == [(1.0, 15)] * 2


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


def test_the_parameters_are_the_one_copy():
    def work(group):
        strategy = strategy_of(group, HOGWILD, replica(OPTIMIZERS["gd"]))
        params = strategy._layout.params.values()
        if group.rank == 0:
            with torch.no_grad():
                for param in params:
                    param.fill_(3.0)
        group.barrier().wait()
        return all((param == 3.0).all() for param in params)

    assert on_threads(2, work) == [True, True]


def test_no_worker_trains_while_another_still_evaluates_or_saves():
    trains = threading.Event()

    def work(group):
        strategy = strategy_of(group, HOGWILD, replica(OPTIMIZERS["gd"]))
        mine = share_of(strategy, 0, (6, 6))
        strategy.step(mine, 0.1)
        strategy.consolidate()
        if group.rank == 1:
            gradients = strategy._layout.gradients

            def announced(share):
                trains.set()
                return gradients(share)

            strategy._layout.gradients = announced
        has_trained = group.rank == 0 and trains.wait(0.3)
        strategy.step(mine, 0.1)
        return has_trained

    assert on_threads(2, work) == [False, False]


def test_workers_that_resume_have_the_saved_weights():
    saved = {}

    def first(group):
        strategy = strategy_of(group, HOGWILD, replica(OPTIMIZERS["adam"]))
        for step in range(3):
            strategy.step(share_of(strategy, step, (6, 6)), 0.1)
        strategy.consolidate()
        if group.rank == 0:
            saved.update({piece.name: piece.tensor.clone() for piece in strategy.pieces()})

    def second(group):
        strategy = strategy_of(group, HOGWILD, replica(OPTIMIZERS["adam"]))
        strategy.load(saved)
        return {name: param.detach().clone() for name, param in strategy._layout.params.items()}

    on_threads(2, first)
    for found in on_threads(2, second):
        for name, tensor in found.items():
            assert torch.equal(tensor, saved[f"model.{name}"])


def test_no_worker_trains_before_all_have_loaded_the_weights():
    """Rank 1 loads when rank 0 waits for it, or has updated already: that update must survive."""
    weights, free_to_load = {}, threading.Event()

    def first(group):
        strategy = strategy_of(group, HOGWILD, replica(OPTIMIZERS["gd"]))
        weights.update({piece.name: piece.tensor.clone() for piece in strategy.pieces()})

    def second(group):
        strategy = strategy_of(group, HOGWILD, replica(OPTIMIZERS["gd"], seed=3))
        if group.rank == 1:
            load = strategy._layout.load

            def late(saved):
                assert free_to_load.wait(60)
                load(saved)

            strategy._layout.load = late
            strategy.load(weights)
        else:
            barrier = group.barrier

            def announced():
                work = barrier()
                free_to_load.set()
                return work

            group.barrier = announced
            strategy.load(weights)
            strategy.step(share_of(strategy, 0, (12, 0)), rate(0))
            free_to_load.set()
        strategy.consolidate()
        return {name: param.detach().clone() for name, param in strategy._layout.params.items()}

    on_threads(1, first)
    expected = one_machine("gd")[0][0]
    for found in on_threads(2, second):
        for name, tensor in found.items():
            assert torch.allclose(tensor, expected[f"model.{name}"], rtol=1e-12, atol=1e-15)
