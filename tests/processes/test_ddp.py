"""Data parallelism among real processes: on a diagonal every strategy, optimizer and kind of group occurs."""

import contextlib
import functools

import ddp_programs
import numpy as np
import pytest
from group_worlds import World

DIAGONAL = [
    ("shm", 2, "ddp", "adam"),
    ("gloo", 2, "ddp, small buckets", "sgd"),
    ("shm", 4, "ddp, small buckets", "gd"),
    ("gloo", 3, "naive", "adamw"),
    ("shm", 2, "naive", "sgd"),
    ("gloo", 2, "dp", "adam"),
    ("shm", 3, "onecopy", "gd"),
]
STEPS = 2


@pytest.fixture(scope="module")
def world_of():
    """Worlds by kind and size, each started once."""
    with contextlib.ExitStack() as worlds:
        yield functools.cache(lambda kind, size: worlds.enter_context(World(kind, size)))


@pytest.mark.parametrize(("kind", "size", "strategy", "optimizer"), DIAGONAL)
def test_lenet_equals_one_machine(world_of, kind, size, strategy, optimizer):
    expected = ddp_programs.train_lenet(None, "single", optimizer, STEPS)
    outcomes = world_of(kind, size).run(ddp_programs.train_lenet, strategy, optimizer, STEPS, timeout_s=100)
    for outcome in outcomes:
        assert outcome.error is None, outcome.message
        assert outcome.value.keys() <= outcomes[0].value.keys() == expected.keys()
        for name, piece in outcome.value.items():
            assert np.array_equal(piece, outcomes[0].value[name]), f"workers hold different bits of {name}"
            scale = max(np.abs(expected[name]).max(), 1e-300)
            assert np.abs(piece - expected[name]).max() / scale <= 1e-12, name


@pytest.mark.parametrize("kind", ["shm", "gloo"])
def test_a_gradient_that_one_worker_lacks_is_named_on_all(kind):
    with World(kind, 2) as world:
        outcomes = world.run(ddp_programs.one_worker_lacks_a_gradient)
    assert outcomes[1].error == "WrapperError"
    for outcome in outcomes:
        assert "no gradient reached 'sometimes.weight', 'sometimes.bias' on rank 1 (2 of 4" in outcome.message


def test_a_program_of_torchs_only_swaps_the_wrapper(world_of):
    world = world_of("shm", 2)
    outcomes = world.run(ddp_programs.beside_torch, world.store.port)
    for outcome in outcomes:
        assert outcome.error is None, outcome.message
        assert [kind for kind, _ in outcome.value] == ["SharedMemoryGroup"] * 2
    assert outcomes[0].value == outcomes[1].value


def test_a_loop_that_ends_early_ends_as_under_torch(world_of):
    world = world_of("shm", 2)
    for outcome in world.run(ddp_programs.ending_early, world.store.port):
        assert outcome.error is None, outcome.message
        for torchs, ours in outcome.value:
            for name, tensor in torchs.items():
                np.testing.assert_allclose(ours[name], tensor, rtol=1e-5, atol=1e-6, err_msg=name)


def test_buffers_are_torchs_on_every_worker_after_every_step(world_of):
    world = world_of("shm", 2)
    for outcome in world.run(ddp_programs.buffers_under_either_wrapper, world.store.port):
        assert outcome.error is None, outcome.message
        assert outcome.value.keys() == ddp_programs.WITH_BUFFERS.keys()
        for name, (different, num_same) in outcome.value.items():
            assert not different, name
            assert num_same >= 48, name


def test_hooks_that_torch_ships_do_what_they_do_under_torch(world_of):
    world = world_of("shm", 2)
    for outcome in world.run(ddp_programs.with_torchs_hooks, world.store.port):
        assert outcome.error is None, outcome.message
        assert max(outcome.value.values()) < 1e-6, outcome.value


def test_programs_that_only_swap_the_wrapper_get_the_same_bits(world_of):
    world = world_of("shm", 2)
    for outcome in world.run(ddp_programs.with_either_wrapper, world.store.port):
        assert outcome.error is None, outcome.message
        for name, (torchs, ours) in outcome.value.items():
            assert np.array_equal(torchs, ours), f"{name}: {np.abs(torchs - ours).max()}"
