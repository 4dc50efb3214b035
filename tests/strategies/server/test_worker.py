"""A parameter server that waits for all workers equals one machine: step by step, in float64."""

from dataclasses import replace
from threading import Barrier

import pytest
import torch
from server_cases import NO_PROGRESS, bsp, history_of, members, strategy_of
from strategy_cases import OPTIMIZERS, SHARES, assert_equal, on_threads, one_machine, replica, share_of

from shoal.strategies.exchange.rules import ROBUST, Robust
from shoal.strategies.server.settings import ServerConfig
from shoal.strategies.strategy import Pause, Serving
from shoal.training import checkpoint
from shoal.training.progress import Progress

pytestmark = pytest.mark.filterwarnings(
    "ignore:the workers' initial parameters differed", "ignore:the norm of rank"
)
KINDS = [(1, "whole"), (2, "uneven"), (3, "even"), (3, "uneven"), (3, "empty")]
CASES = [
    *(("bsp", 1, "adam", 0.5, *kind) for kind in KINDS),
    *(("bsp", 2, "sgd", None, *kind) for kind in KINDS),
    *(("ssp", servers, "adam", 0.5, *kind) for servers in (1, 2) for kind in ((2, "uneven"), (3, "empty"))),
]
"""Mode, servers, optimizer, limit of the norm, and shares."""


@pytest.mark.parametrize(("mode", "servers", "optimizer", "clip_norm", "size", "kind"), CASES)
def test_without_staleness_it_equals_one_machine(mode, servers, optimizer, clip_norm, size, kind):
    found = members(
        lambda rank: replica(OPTIMIZERS[optimizer], seed=rank, clip_norm=clip_norm),
        bsp(mode=mode, staleness=0 if mode == "ssp" else None, servers=servers),
        SHARES[size][kind],
        parts=2,
    )
    assert_equal(found, one_machine(optimizer, clip_norm))


def test_without_common_memory_gradients_and_weights_are_sent():
    def work(world):
        world.maps_memory = False
        return history_of(strategy_of(world, bsp(servers=2), replica(OPTIMIZERS["adam"])), (7, 5))

    expected = one_machine("adam")[-1][0]
    for state, *_ in [history[-1] for history in on_threads(4, work)[:2]]:
        assert all(torch.allclose(state[key], expected[key], rtol=1e-12, atol=1e-15) for key in state)


MODES = {
    "bsp": ServerConfig(),
    "ssp": ServerConfig(mode="ssp", staleness=1),
    "asp": ServerConfig(mode="asp"),
    "hogwild": ServerConfig(mode="hogwild"),
}


@pytest.mark.parametrize(
    ("mode", "maps_memory", "updates"),
    [
        ("bsp", True, 3),
        ("bsp", False, 3),
        ("ssp", True, 7),
        ("ssp", False, 7),
        ("asp", True, 7),
        ("asp", False, 7),
        ("hogwild", True, 7),
    ],
)
def test_a_skipped_update_is_not_counted_as_one(mode, maps_memory, updates):
    """Rank 1's second gradient of four is NaN: one push is left out or, where pushes are gathered, one step."""

    def work(world):
        world.maps_memory = maps_memory
        strategy = strategy_of(world, MODES[mode], replica(OPTIMIZERS["gd"]), on_nonfinite="skip")
        if strategy.serves:
            strategy.serve(Serving())
            return None
        for step in range(4):
            mine = share_of(strategy, step, (7, 5))
            if step == 1 and strategy.data_rank == 1:
                mine.parts[0].inputs[0, 0] = torch.nan
            strategy.step(mine, 0.1)
        strategy.consolidate()
        strategy.pause(Pause(NO_PROGRESS, is_end=True))
        return strategy.summary()

    for summary in on_threads(2 + MODES[mode].num_servers, work)[:2]:
        assert (summary["updates"], summary["skipped"]) == (updates, 1)


@pytest.mark.parametrize("engine", ["tape", "static"])
def test_our_own_engines_train_under_it_too(engine):
    found = members(lambda rank: replica(OPTIMIZERS["adam"], engine=engine), bsp(servers=2), (7, 5))
    expected = one_machine("adam")[-1][0]
    weights = found[0][-1][0]
    assert all(torch.allclose(weights[key], expected[key], rtol=1e-10) for key in weights)


def test_a_robust_rule_on_the_server_is_unharmed_by_one_bad_worker():
    exchange = Robust(ROBUST["median"], 1)

    def work(world):
        copy = replica(OPTIMIZERS["gd"])
        strategy = strategy_of(world, bsp(), copy, exchange)
        if world.rank == 1:
            client = strategy._client
            honest = client.take_gradients

            def wrong():
                missing = honest()
                for gradients in client.gradients:
                    gradients.mul_(-1000.0)
                return missing

            client.take_gradients = wrong
        return history_of(strategy, (4, 4, 4))

    attacked = on_threads(4, work)[0][-1][0]
    expected = one_machine("gd")[-1][0]
    for key, tensor in attacked.items():
        assert tensor.isfinite().all()
        assert (tensor - expected[key]).abs().max() < 0.5


@pytest.mark.parametrize("servers", [1, 2])
def test_a_resumed_run_has_the_bits_of_one_that_was_never_stopped(tmp_path, servers):
    config, shares = bsp(servers=servers), (7, 5)

    def whole(world):
        return history_of(strategy_of(world, config, replica(OPTIMIZERS["adam"])), shares)

    def cut(world):
        strategy = strategy_of(world, config, replica(OPTIMIZERS["adam"]))
        history_of(strategy, shares, steps=4)
        checkpoint.save(tmp_path, strategy.pieces(), Progress(step=4), keep=1, group=world)
        resumed = strategy_of(world, config, replica(OPTIMIZERS["adam"], seed=3))
        resumed.load(checkpoint.latest(tmp_path).pieces())
        return history_of(resumed, shares, first=4)

    for never_stopped, found in zip(
        on_threads(2 + servers, whole), on_threads(2 + servers, cut), strict=True
    ):
        for (expected, *_), (state, *_) in zip(never_stopped[4:], found, strict=True):
            assert all(torch.equal(state[key], expected[key]) for key in expected)


def test_a_worker_that_is_steps_behind_stops_where_the_others_did():
    """Its push is dropped, and it skips to the step of the others. It must not push again: no reply would come."""
    config, others_stopped, steps = bsp(backup=1), Barrier(3), 3

    def work(world):
        strategy = strategy_of(world, config, replica(OPTIMIZERS["gd"]))
        if strategy.serves:
            strategy.serve(Serving())
            return []
        if world.rank == 2:
            others_stopped.wait()
        signals = []
        for step in range(steps):
            share = share_of(strategy, step, (4, 4, 4), 1)
            signal = 15 if (world.rank, step) == (0, steps - 1) else 0
            signals.append(strategy.step(replace(share, stop_signal=signal), 0.1).stop_signal)
        if world.rank < 2:
            others_stopped.wait()
        strategy.consolidate()
        strategy.pause(Pause(NO_PROGRESS, is_end=True))
        return signals

    assert on_threads(4, work) == [[0, 0, 15]] * 3 + [[]]
