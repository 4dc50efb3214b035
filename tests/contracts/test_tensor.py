"""A model whose layers are divided among workers equals one machine: step by step, in float64, for every cut.

Its state is saved by one mesh and loaded by others, and its fingerprint is one machine's.
"""

import pytest
import torch
from strategy_cases import OPTIMIZERS, assert_close_states, on_threads, single
from tensor_cases import (
    BATCH,
    MODELS,
    copy_of_model,
    one_machine_of,
    samples,
    share_of_step,
    tensor_strategy,
    train,
    wholes_of,
)

from shoal.comm.alone import alone
from shoal.config.sections.optimizer import SgdConfig
from shoal.data.dataset import Batch
from shoal.strategies.pieces.whole_tensors import weights_sha256
from shoal.training import checkpoint
from shoal.training.progress import Progress

pytestmark = pytest.mark.filterwarnings("ignore:the norm of rank")
# Not Adam: the gradient of the keys' bias is zero, up to rounding, and Adam makes steps of the rounding.
SGD = OPTIMIZERS["sgd"]
READABLE = SgdConfig(lr=0.1, momentum=0.9, fast=False)
"""The step whose bits do not depend on how parameters are sliced."""
CASES = [
    *((name, 2, "sgd", 0.5) for name in MODELS),
    # Convolutions are cut as linear layers are: a small network shows it.
    *(
        (name, 4, "sgd", 0.5)
        for name in MODELS
        if not name.startswith("resnet18") and "automatic" not in name
    ),
    *(("mlp", 2, *rule) for rule in (("gd", None), ("adam", 0.5), ("adamw", None))),
    *(("lenet", 4, *rule) for rule in (("adam", 0.5), ("adamw", None))),
]


def assert_equals_one_machine(members, name, optimizer, clip_norm, parts=2):
    for step, (expected, loss) in enumerate(one_machine_of(name, optimizer, clip_norm, parts)):
        assert_close_states(members[0][step][0], expected, f"after step {step}")
        for member in members:
            assert member[step][1] == pytest.approx(loss, rel=1e-12)


@pytest.mark.parametrize(("name", "workers", "optimizer", "clip_norm"), CASES)
def test_equals_one_machine(name, workers, optimizer, clip_norm):
    def work(world):
        strategy = tensor_strategy(name, OPTIMIZERS[optimizer], world, workers, clip_norm)
        return train(name, strategy, world)

    assert_equals_one_machine(on_threads(workers, work), name, optimizer, clip_norm)


REPLICAS = [(name, (5, 1)) for name in ("mlp", "lenet", "resnet18 group", "transformer", "by function")]
REPLICAS += [("torch encoder", (4, 2)), ("transformer", (3, 3)), ("transformer", (0, 6))]


@pytest.mark.parametrize(("name", "shares"), REPLICAS)
def test_two_replicas_of_two_workers_equal_one_machine(name, shares):
    def work(world):
        return train(name, tensor_strategy(name, SGD, world, 2, clip_norm=0.5), world, shares)

    assert_equals_one_machine(on_threads(4, work), name, "sgd", 0.5)


DIVIDING = ["onecopy", "zero 1", "zero 2", "zero 3", "zero 3, gathered"]
"""The syncs that divide the state of replicas among them."""
UNEVEN = {
    "mlp": (5, 1),
    "resnet18 batch": (6, 0),  # batch norm equals one machine where one replica has all samples
    "transformer": (4, 2),
    "every cut": (0, 6),
    "by function": (3, 3),
    "torch encoder": (5, 1),
}


@pytest.mark.parametrize(
    ("name", "shares", "sync"),
    [
        (name, shares, sync)
        for name, shares in UNEVEN.items()
        for sync in (
            DIVIDING if name == "every cut" else ("onecopy", "zero 3, gathered")[name[:3] == "res" :]
        )
    ],
)
def test_two_replicas_divide_the_state_of_divided_layers(name, shares, sync):
    def work(world):
        return train(name, tensor_strategy(name, SGD, world, 2, clip_norm=0.5, sync=sync), world, shares)

    assert_equals_one_machine(on_threads(4, work), name, "sgd", 0.5)


@pytest.mark.parametrize("sync", DIVIDING)
def test_the_sync_of_two_replicas_changes_no_bit(sync):
    def work(sync):
        return lambda world: train(
            "every cut",
            tensor_strategy("every cut", READABLE, world, 2, clip_norm=0.5, sync=sync),
            world,
            (3, 3),
            parts=1,
        )

    expected, found = (on_threads(4, work(name))[0][-1][0] for name in ("ddp", sync))
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[name], each) for name, each in expected.items())


MESHES = {
    "single": (1, 1, "ddp"),
    "ddp": (2, 1, "ddp"),
    "tensor": (2, 2, "ddp"),
    "tensor of 4": (4, 4, "ddp"),
    "2 × 2": (4, 2, "ddp"),
    "2 × 2, zero 1": (4, 2, "zero 1"),
    "2 × 2, zero 3": (4, 2, "zero 3"),
}
"""Workers, how many of them divide one replica, and the sync of the replicas."""


CONTINUED = [
    *(("transformer", "2 × 2", loaded) for loaded in MESHES),
    ("transformer", "tensor", "2 × 2, zero 3"),
    ("transformer", "2 × 2, zero 3", "tensor of 4"),
    ("torch encoder", "tensor", "single"),
    ("torch encoder", "2 × 2, zero 3", "tensor of 4"),
    ("by function", "tensor", "2 × 2"),
    ("by function", "2 × 2, zero 3", "tensor"),
    ("by function", "2 × 2", "single"),
]
"""A checkpoint holds whole tensors, whoever saved it: every mesh loads it, and every kind of mesh has saved one."""


@pytest.mark.parametrize(("name", "saved", "loaded"), CONTINUED)
def test_saved_by_one_mesh_and_continued_by_another(name, saved, loaded, tmp_path):
    def built(mesh, world):
        _, along, sync = MESHES[mesh]
        return tensor_strategy(name, SGD, world, along, clip_norm=0.5, sync=sync)

    def shares(strategy):
        return (BATCH,) if strategy.data_size == 1 else (4, 2)

    def save(world):
        strategy = built(saved, world)
        train(name, strategy, world, shares(strategy), last=2)
        checkpoint.save(tmp_path, strategy.pieces(), Progress(step=2), keep=1, group=world)
        return weights_sha256(strategy.pieces(), world)

    fingerprints = set(on_threads(MESHES[saved][0], save))
    found = checkpoint.latest(tmp_path)
    reference = single(copy_of_model(name, SGD))
    reference.load(found.pieces())
    assert fingerprints == {weights_sha256(reference.pieces(), alone())}

    def go_on(world):
        strategy = built(loaded, world)
        strategy.load(found.pieces())
        return train(name, strategy, world, shares(strategy), first=2)

    state, _ = on_threads(MESHES[loaded][0], go_on)[0][-1]
    assert_close_states(state, one_machine_of(name, "sgd", 0.5)[-1][0], "at the end")


def test_a_state_of_one_machine_goes_on_divided(tmp_path):
    strategy = single(copy_of_model("transformer", SGD))
    train("transformer", strategy, alone(), last=1)
    checkpoint.save(tmp_path, strategy.pieces(), Progress(step=1), keep=1)
    saved = checkpoint.latest(tmp_path).pieces()

    def go_on(world):
        divided = tensor_strategy("transformer", SGD, world, 2)
        divided.load(saved)
        return train("transformer", divided, world, first=1)

    state, _ = on_threads(2, go_on)[0][-1]
    assert_close_states(state, one_machine_of("transformer", "sgd")[-1][0], "at the end")


@pytest.mark.parametrize("sync", ["zero 3", "zero 3, gathered"])
def test_replicas_without_whole_weights_evaluate_the_same(sync):
    inputs, labels = samples(MODELS["transformer"][1])
    batch = Batch(inputs, labels, len(labels))

    def loss(strategy):
        return strategy.evaluate(batch).loss.item()

    expected = loss(single(copy_of_model("transformer", SGD)))
    for mine in on_threads(4, lambda world: loss(tensor_strategy("transformer", SGD, world, 2, sync=sync))):
        assert mine == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_every_worker_evaluates_the_same_as_one_machine(name):
    inputs, labels = samples(MODELS[name][1])
    batch = Batch(inputs, labels, len(labels))

    def sums(strategy):
        found = strategy.evaluate(batch)
        return found.loss.item(), found.correct.item(), found.predictions, found.samples

    expected = sums(single(copy_of_model(name, SGD)))
    for mine in on_threads(2, lambda world: sums(tensor_strategy(name, SGD, world, 2))):
        assert mine == pytest.approx(expected, rel=1e-12)


def test_weights_and_moments_are_divided():
    """Each of four workers holds a quarter of what is cut, and all of what is not."""

    def work(world):
        strategy = tensor_strategy("every cut", SGD, world, 4)
        train("every cut", strategy, world, last=1)
        return {piece.name: piece.tensor.numel() for piece in strategy.pieces()}

    (whole, _), *_ = one_machine_of("every cut", "sgd")
    for mine in on_threads(4, work):
        for part in ("tokens", "blocks.0.attention.qkv", "blocks.0.fc1", "blocks.0.fc2", "head"):
            for key in (f"model.{part}.weight", f"optim.{part}.weight.momentum_buffer"):
                assert mine[key] == whole[key].numel() / 4
        assert mine["model.norm.weight"] == whole["model.norm.weight"].numel()


def test_what_is_not_divided_keeps_the_same_bits_on_all_workers():
    def work(world):
        strategy = tensor_strategy("transformer", SGD, world, 2)
        train("transformer", strategy, world)
        return {piece.name: piece.tensor.clone() for piece in strategy.pieces() if piece.is_whole}

    first, second = on_threads(2, work)
    assert "model.blocks.0.fc2.bias" in first
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("forgotten", ["norm", "sum"])
def test_the_classic_mistakes_are_caught(forgotten, monkeypatch):
    """A norm over the own parts alone; a column layer whose input gradient is not summed."""

    def work(world):
        strategy = tensor_strategy("transformer", OPTIMIZERS["sgd"], world, 2, clip_norm=0.5)
        if forgotten == "norm":
            strategy._layout.sharded_over = ()
        else:
            monkeypatch.setattr(type(world), "all_reduce", quiet(type(world).all_reduce))
        return wholes_after_one_step(strategy, world)

    def quiet(all_reduce):
        def skipped(group, buffer, *rest):
            # Two-dimensional and larger: activations, not the numbers of the guard.
            return all_reduce(group, buffer.clone() if buffer.dim() == 3 else buffer, *rest)

        return skipped

    state = on_threads(2, work)[0]
    with pytest.raises(AssertionError):
        assert_close_states(state, one_machine_of("transformer", "sgd", 0.5)[0][0], "after a step")


def wholes_after_one_step(strategy, world):
    strategy.step(share_of_step(MODELS["transformer"][1], 0, (BATCH,), 0), 0.05)
    return wholes_of(strategy, world)
