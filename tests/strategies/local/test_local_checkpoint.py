"""Checkpoints of `local`: exact resuming in mid-interval, and one model for everyone else."""

from functools import partial

import pytest
import torch
from local_cases import STEPS, trained, weights_of
from strategy_cases import (
    OPTIMIZERS,
    STRATEGIES,
    distance,
    local,
    on_threads,
    one_machines,
    replica,
    share_of,
    single,
)
from torch import nn

from shoal.comm.alone import alone
from shoal.strategies.pieces.piece import by_name
from shoal.strategies.pieces.whole_tensors import WholeTensors, weights_sha256
from shoal.training import checkpoint
from shoal.training.progress import Progress

SHARES = (9, 3)
VARIANTS = {
    "averaged moments": ("sgd", {"every": 4}),
    "kept moments": ("adam", {"every": 4, "moments": "keep"}),
    "DiLoCo": ("adam", {"every": 3, "outer_lr": 0.7, "outer_momentum": 0.9}),
    "overlapped": ("adam", {"every": 4, "overlap": 3, "outer_momentum": 0.9}),
    "streaming": ("sgd", {"every": 4, "fragments": 3, "overlap": 2}),
}


def saved_at(folder, step, strategy, group):
    """Train up to a step, and save."""
    trained(strategy, SHARES, steps=step)
    strategy.consolidate()
    checkpoint.save(folder, strategy.pieces(), Progress(step=step), keep=1, group=group)
    return {name: tensor.clone() for name, tensor in by_name(one_machines(strategy.pieces())).items()}


@pytest.mark.parametrize(
    ("variant", "step"),
    [*((variant, step) for variant in VARIANTS for step in (4, 5)), ("streaming", 2), ("streaming", 6)],
)
def test_a_resumed_run_has_the_bits_of_one_that_was_never_stopped(tmp_path, variant, step):
    optimizer, options = VARIANTS[variant]
    config = OPTIMIZERS[optimizer]

    def whole(group):
        return trained(local(replica(config), group, **options), SHARES)

    def cut(group):
        saved_at(tmp_path, step, local(replica(config), group, **options), group)
        resumed = local(replica(config, seed=3), group, **options)
        resumed.load(checkpoint.latest(tmp_path).pieces())
        return trained(resumed, SHARES, first=step)

    for never_stopped, found in zip(on_threads(2, whole), on_threads(2, cut), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(found, never_stopped[step:], strict=True))


@pytest.mark.parametrize("variant", VARIANTS)
def test_saving_and_evaluating_change_nothing(variant):
    optimizer, options = VARIANTS[variant]

    def work(saves, group):
        return trained(local(replica(OPTIMIZERS[optimizer]), group, **options), SHARES, saves=saves)

    for without, with_saves in zip(
        *(on_threads(2, partial(work, each)) for each in (False, True)), strict=True
    ):
        assert all(torch.equal(a, b) for a, b in zip(without, with_saves, strict=True))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_model_is_the_same_on_all_workers_and_their_mean(variant):
    optimizer, options = VARIANTS[variant]

    def work(group):
        strategy = local(replica(OPTIMIZERS[optimizer]), group, **options)
        trained(strategy, SHARES, steps=2)
        own = weights_of(strategy)
        strategy.consolidate()
        batch = share_of(single(replica(OPTIMIZERS["gd"])), 0, (12,)).parts[0]
        state = by_name(one_machines(strategy.pieces()))
        sums = strategy.evaluate(batch)
        return own, weights_of(strategy), sums.loss.item(), weights_sha256(strategy.pieces(), group), state

    first, second = on_threads(2, work)
    assert not torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert first[2:4] == second[2:4]
    assert all(torch.equal(first[4][name], second[4][name]) for name in first[4])
    # Before the first averaging all fragments have the same weights: the parts of the samples.
    if options.get("fragments", 1) == 1:
        assert distance(first[1], 0.75 * first[0] + 0.25 * second[0]) <= 1e-12


@pytest.mark.parametrize(("size", "name"), [(1, "single"), (3, "local"), (2, "ddp"), (2, "local, other k")])
@pytest.mark.parametrize("variant", ["DiLoCo", "streaming"])
def test_others_continue_from_the_one_model(tmp_path, variant, size, name):
    optimizer, options = VARIANTS[variant]
    config = OPTIMIZERS[optimizer]

    def save(group):
        return saved_at(tmp_path, 5, local(replica(config), group, **options), group)

    expected = on_threads(2, save)[0]
    saved = checkpoint.latest(tmp_path).pieces()

    def go_on(group):
        mine = replica(config, seed=4)
        others = {
            "single": lambda: single(mine),
            "ddp": lambda: STRATEGIES["ddp"](mine, group),
            "local": lambda: local(mine, group, **options),
            "local, other k": lambda: local(mine, group, **{**options, "every": 7}),
        }
        strategy = others[name]()
        strategy.load(saved)
        strategy.consolidate()
        wholes = WholeTensors(strategy.pieces(), group if name != "single" else alone(), prefix="")
        state = {key: whole.clone() for key, whole in wholes}
        shares = {1: (12,), 2: (6, 6), 3: (4, 4, 4)}[size]
        trained(strategy, shares, first=5, steps=STEPS)
        assert weights_of(strategy).isfinite().all()
        return state

    state = on_threads(size, go_on)[0]
    for key, tensor in expected.items():
        assert distance(state[key], tensor) <= 1e-12, key
    if name.startswith("local"):
        kept = [key for key in state if key.startswith("local.momentum.")]
        assert kept
        assert all(torch.equal(state[key], saved[key]) for key in kept), (
            "the outer step goes on with its momentum"
        )


def normed():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 5))


def test_buffers_are_averaged_in_the_model_and_kept_in_training():
    def work(group):
        strategy = local(replica(OPTIMIZERS["sgd"], network=normed), group, every=2)
        trained(strategy, (6, 6), steps=3)
        own = strategy._layout.model[1].running_mean.clone()
        strategy.consolidate()
        mean = strategy._layout.model[1].running_mean.clone()
        trained(strategy, (6, 6), first=3, steps=4)
        return own, mean

    (first, mean), (second, also) = on_threads(2, work)
    assert not torch.equal(first, second)
    assert torch.equal(mean, also)
    assert distance(mean, (first + second) / 2) <= 1e-12


def test_an_epochs_loss_is_that_of_all_workers():
    def work(group):
        strategy = local(replica(OPTIMIZERS["sgd"]), group, every=100)
        trained(strategy, (9, 3), steps=2)
        return strategy.agree_on_loss(10.0 + group.rank)

    assert on_threads(2, work) == pytest.approx([10.25, 10.25])
