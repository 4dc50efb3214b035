"""ZeRO among real processes: one copy of the weights in shared memory, gathered units on gloo, one result."""

import functools

import numpy as np
import pytest
import zero_programs
from group_worlds import World

STAGES = [1, 2, 3]


@functools.cache
def one_machine():
    (state,) = zero_programs.train_in_stages(None, [1])
    return state


def assert_equal(outcomes, expected):
    assert [outcome.error for outcome in outcomes] == [None] * len(outcomes), outcomes[0].message
    for stage, state in zip(STAGES, outcomes[0].value, strict=True):
        assert state.keys() == expected.keys()
        for name, whole in expected.items():
            scale = max(np.abs(whole).max(), 1e-300)
            assert np.abs(state[name] - whole).max() / scale <= 1e-12, (stage, name)


@pytest.mark.parametrize(("kind", "size"), [("shm", 2), ("gloo", 3)])
def test_every_stage_equals_one_machine(kind, size):
    with World(kind, size) as world:
        for program in (zero_programs.train_in_stages, zero_programs.loop_of_a_user):
            assert_equal(world.run(program, STAGES, timeout_s=100), one_machine())


@pytest.mark.parametrize(("kind", "size"), [("shm", 2), ("gloo", 2)])
def test_every_stage_from_meta_equals_one_machine(kind, size):
    (expected,) = zero_programs.from_meta(None, [1])
    with World(kind, size) as world:
        assert_equal(world.run(zero_programs.from_meta, STAGES, timeout_s=100), expected)


@pytest.mark.gpu
def test_every_stage_from_meta_equals_one_machine_on_a_gpu():
    (expected,) = zero_programs.from_meta(None, [1])
    with World("gloo", 2) as world:
        assert_equal(world.run(zero_programs.from_meta, STAGES, "cuda", timeout_s=100), expected)


@pytest.mark.gpu
def test_every_stage_equals_one_machine_on_a_gpu():
    (expected,) = zero_programs.train_in_stages(None, [1], "cuda")
    with World("gloo", 2) as world:
        for program in (zero_programs.train_in_stages, zero_programs.loop_of_a_user):
            assert_equal(world.run(program, STAGES, "cuda", timeout_s=100), expected)
