"""`zero` beyond equality: the bits of `ddp`, what a worker holds, and what a user notices when something is wrong."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from strategy_cases import (
    BATCH,
    OPTIMIZERS,
    STRATEGIES,
    assert_close_states,
    assert_equal,
    copy_of,
    made,
    network,
    on_threads,
    one_machine,
    rate,
    replica,
    share,
    share_of,
    single,
    train,
)
from torch import nn

from shoal.comm.alone import alone
from shoal.config.read import read
from shoal.config.sections.optimizer import AdamConfig
from shoal.data.division.order import even_shares
from shoal.errors import CheckpointError, ConfigError, DivergedError
from shoal.strategies.pieces.piece import by_name
from shoal.strategies.pieces.whole_tensors import WholeTensors, weights_sha256
from shoal.strategies.zero.settings import ZeroConfig
from shoal.strategies.zero.zero import Zero, unit_of
from shoal.training import checkpoint
from shoal.training.progress import Progress

ADAM = OPTIMIZERS["adam"]
READABLE = AdamConfig(lr=0.01, fast=False)
ZEROS = ["zero 1", "zero 2", "zero 3", "zero 3, gathered"]


def wide():
    return nn.Sequential(nn.Linear(6, 300), nn.ReLU(), nn.Linear(300, 5))


@pytest.mark.parametrize(("size", "clip_norm"), [(2, None), (3, 0.5), (4, 0.5)])
def test_the_same_bits_as_ddp_and_onecopy(size, clip_norm):
    def fingerprint(name, group):
        mine = replica(READABLE, clip_norm=clip_norm, dtype=torch.float32, network=wide)
        strategy = STRATEGIES[name](mine, group)
        for step in range(4):
            mine = share_of(strategy, step, even_shares(BATCH, size), dtype=torch.float32)
            strategy.step(mine, rate(step))
        return weights_sha256(strategy.pieces(), group)

    found = {name: set(on_threads(size, partial(fingerprint, name))) for name in ("ddp", "onecopy", *ZEROS)}
    assert len(set.union(*found.values())) == 1, found


@pytest.mark.parametrize("name", ["zero 1", "zero 3", "zero 3, gathered"])
def test_a_worker_holds_its_part_of_the_state(name):
    def work(group):
        strategy = STRATEGIES[name](replica(ADAM, network=wide), group)
        strategy.step(share_of(strategy, 0, (3, 3, 3, 3)), 0.1)
        kinds = ("optim.", "model.") if "3" in name else ("optim.",)
        return [
            sum(piece.tensor.numel() for piece in strategy.pieces() if piece.name.startswith(kind))
            for kind in kinds
        ]

    reference = single(replica(ADAM, network=wide))
    reference.step(share(0, 0, 12), 0.1)
    held = on_threads(4, work)
    for kind, *numels in zip(("optim.", "model."), *held, strict=False):
        whole = sum(piece.tensor.numel() for piece in reference.pieces() if piece.name.startswith(kind))
        # Steps are counted by each worker for its slices; a slice is a chunk of 1024 elements or more.
        assert sum(numels) <= whole + 20
        assert max(numels) < whole


def test_no_gradient_stays_with_a_worker_in_stage_2():
    def work(group):
        mine = replica(ADAM)
        left = []
        strategy = STRATEGIES["zero 2"](mine, group)
        gradients = mine.layout.gradients

        def noted(share, **given):
            left.append([param.grad for param in mine.params.values()])
            return gradients(share, **given)

        mine.layout.gradients = noted
        strategy.step(share(0, 6 * group.rank, 6, parts=3), 0.1)
        return [*left, [param.grad for param in mine.params.values()]]

    for left in on_threads(2, work):
        assert left == [[None] * 4] * 4


LOADED = [(1, "single"), (2, "zero 1"), (3, "zero 3"), (8, "zero 3, gathered"), (2, "ddp"), (3, "onecopy")]


@pytest.mark.parametrize("saved", ["zero 1", "zero 3", "zero 3, gathered", "ddp"])
def test_saved_by_four_and_continued_by_others(saved, tmp_path):
    first, last = 2, 4

    def steps(strategy, group, begin, end):
        for step in range(begin, end):
            shares = even_shares(BATCH, strategy.data_size)
            strategy.step(share_of(strategy, step, shares, parts=2), rate(step))
        return dict(WholeTensors(strategy.pieces(), group, prefix=""))

    def save(group):
        strategy = STRATEGIES[saved](replica(ADAM), group)
        steps(strategy, group, 0, first)
        checkpoint.save(tmp_path, strategy.pieces(), Progress(step=first), keep=1, group=group)

    on_threads(4, save)
    found = checkpoint.latest(tmp_path)

    def go_on(name, group):
        mine = replica(ADAM, seed=7)
        strategy = single(mine) if name == "single" else STRATEGIES[name](mine, group)
        strategy.load(found.pieces())
        return steps(strategy, group if name != "single" else alone(), first, last)

    for size, name in LOADED:
        state = on_threads(size, partial(go_on, name))[0]
        assert_close_states(state, one_machine("adam")[last - 1][0], f"under {name} of {size}")


@pytest.mark.parametrize("name", ["zero 3", "zero 3, gathered"])
def test_weights_of_another_model_are_refused(name):
    def load(change):
        saved = {f"model.{key}": tensor.clone() for key, tensor in network().double().state_dict().items()}
        change(saved)
        on_threads(2, lambda group: STRATEGIES[name](replica(ADAM), group).load(saved))

    with pytest.raises(CheckpointError, match=r"they lack '2.bias' \(5,\)"):
        load(lambda saved: saved.pop("model.2.bias"))
    with pytest.raises(CheckpointError, match="'3.bias' is not in this model"):
        load(lambda saved: saved.update({"model.3.bias": torch.ones(1)}))
    with pytest.raises(CheckpointError, match=r"'0.bias' is \(9,\) there and \(8,\) here"):
        load(lambda saved: saved.update({"model.0.bias": torch.ones(9)}))


@pytest.mark.parametrize("name", ZEROS)
@pytest.mark.parametrize("parts", [1, 2])
def test_bad_numbers_end_the_run_before_the_update(name, parts):
    def work(group):
        strategy = STRATEGIES[name](replica(ADAM), group)
        before = {key: tensor.clone() for key, tensor in by_name(strategy.pieces()).items()}
        part = share(0, 6 * group.rank, 6, parts)
        if group.rank == 1:
            part.parts[0].inputs[0, 0] = torch.nan
        with pytest.raises(DivergedError, match="rank 1's"):
            strategy.step(part, 0.1)
        after = by_name(strategy.pieces())
        return all(torch.equal(before[key], after[key]) for key in before)

    assert on_threads(2, work) == [True, True]


@pytest.mark.filterwarnings("ignore:the norm of rank")
@pytest.mark.parametrize("name", [1, 2, 3])
def test_a_step_left_out_leaves_no_trace(name):
    def work(group):
        strategy = made(Zero, ZeroConfig(stage=name), replica(OPTIMIZERS["sgd"]), group, on_nonfinite="skip")
        bad = share(0, 6 * group.rank, 6)
        bad.parts[0].inputs[0, 0] = torch.nan
        strategy.step(bad, 0.1)
        strategy.step(share(0, 6 * group.rank, 6), rate(0))
        return dict(WholeTensors(strategy.pieces(), group, prefix=""))

    with pytest.warns(UserWarning, match="left out"):
        state = on_threads(2, work)[0]
    assert_close_states(state, one_machine("sgd")[0][0], "after one good step")


class Forked(nn.Module):
    """Takes the left way or, if a sample says so, the right one; a third way is never taken."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.never = nn.Linear(6, 5), nn.Linear(6, 5), nn.Linear(6, 5)

    def forward(self, inputs):
        return self.right(inputs) if inputs[0, 0] > 100 else self.left(inputs)


def forked_step(stage, unused, group):
    mine = replica(OPTIMIZERS["adamw"], network=Forked)
    config = ZeroConfig(stage=stage, unused=unused, unit_mib=1e-4)
    strategy = made(Zero, config, mine, group)
    before = {name: param.clone() for name, param in mine.params.items()}
    part = share(0, 6 * group.rank, 6)
    if group.rank == 1:
        part.parts[0].inputs[:, 0] = 1000.0
    strategy.step(part, 0.1)
    return {
        name.partition(".")[0]: not torch.equal(before[name], param) for name, param in mine.params.items()
    }


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_parameters_without_a_gradient(stage):
    with pytest.raises(
        ConfigError, match=r"no gradient reached '\w+.weight'.* on rank \d \(4 of 6 parameters\)"
    ):
        on_threads(2, partial(forked_step, stage, "refuse"))
    for changed in on_threads(2, partial(forked_step, stage, "zero")):
        assert changed == {"left": True, "right": True, "never": False}


def normed():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 5))


@pytest.mark.parametrize("name", ZEROS)
def test_buffers_are_those_of_ddp(name):
    def buffers(name, group):
        strategy = STRATEGIES[name](replica(OPTIMIZERS["sgd"], network=normed), group)
        train(strategy, (6, 6), steps=3)
        pieces = by_name(strategy.pieces())
        return {key: pieces[f"model.1.{key}"] for key in ("running_mean", "running_var")}

    expected = on_threads(2, partial(buffers, "ddp"))[0]
    for found in on_threads(2, partial(buffers, name)):
        assert_close_states(found, expected, "after 3 steps")


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_synchronised_batch_norm_equals_one_machine(stage):
    def work(group):
        mine = replica(OPTIMIZERS["sgd"], network=normed)
        config = ZeroConfig(stage=stage, sync_batchnorm=True, unit_mib=1e-4)
        strategy = made(Zero, config, mine, group)
        train(strategy, (12, 0), steps=3)
        return dict(WholeTensors(strategy.pieces(), group, prefix=""))

    expected = train(single(replica(OPTIMIZERS["sgd"], network=normed)), (BATCH,), steps=3)
    assert_close_states(on_threads(2, work)[0], expected[-1][0], "after 3 steps")


@pytest.mark.parametrize("name", ["zero 2", "zero 3", "zero 3, gathered"])
def test_frozen_parameters_stay_whole(name):
    def frozen():
        model = network()
        model[0].weight.requires_grad_(False)
        return model

    def work(group):
        return train(STRATEGIES[name](replica(OPTIMIZERS["sgd"], network=frozen), group), (6, 6), steps=2)

    assert_equal(
        on_threads(2, work), train(single(replica(OPTIMIZERS["sgd"], network=frozen)), (12,), steps=2)
    )


def test_alone_it_is_single():
    def work(group):
        return train(STRATEGIES["zero 3"](replica(ADAM), group), (BATCH,))

    ((history,), expected) = on_threads(1, work), one_machine("adam")
    assert all(
        torch.equal(state[key], wanted[key])
        for (state, _, _), (wanted, _, _) in zip(history, expected, strict=True)
        for key in wanted
    )


@pytest.mark.parametrize("name", ZEROS)
def test_a_stop_signal_reaches_all_workers(name):
    def work(group):
        strategy = STRATEGIES[name](replica(ADAM), group)
        mine = replace(share(0, 6 * group.rank, 6), stop_signal=15 if group.rank == 1 else 0)
        return strategy.step(mine, 0.1).stop_signal

    assert on_threads(2, work) == [15, 15]


@pytest.mark.parametrize("name", ZEROS)
def test_bf16_has_the_bits_of_ddp(name):
    def weights(name, group):
        model = replica(READABLE, dtype=torch.float32, network=wide).model
        mine = copy_of(model, READABLE, precision="bf16")
        strategy = STRATEGIES[name](mine, group)
        for step in range(2):
            strategy.step(share_of(strategy, step, (6, 6), dtype=torch.float32), 0.01)
        assert all(piece.tensor.dtype is torch.float32 for piece in strategy.pieces())
        return weights_sha256(strategy.pieces(), group)

    assert set(on_threads(2, partial(weights, name))) == set(on_threads(2, partial(weights, "ddp")))


class Rprop(torch.optim.Rprop):
    pass


def test_an_optimizer_that_is_not_elementwise_is_named():
    def work(group):
        mine = replica(ADAM)
        mine.update.optimizer = Rprop(mine.params.values())
        STRATEGIES["zero 1"](mine, group)

    with pytest.raises(ConfigError, match="Rprop is not known to update each element on its own"):
        on_threads(2, work)


def blocks(name):
    """The first layer, and the rest."""
    return name.startswith("0")


def test_a_users_function_cuts_the_model_into_units():
    config = read(None, f"--strategy zero --strategy.stage 3 --strategy.unit_of {__name__}:blocks".split())

    def work(group):
        group.maps_memory = False
        return train(made(Zero, config.sync, replica(ADAM), group), (6, 6))

    assert_equal(on_threads(2, work), one_machine("adam"))
    with pytest.raises(ConfigError, match="unknown name in module"):
        unit_of(ZeroConfig(unit_of=f"{__name__}:blokcs"))
