"""The checks of Lab 1 on rules and records that are right, or wrong in one place."""

import pytest
from recorded import recorded, step, trained

from shoal_labs.check.fault import fault
from shoal_labs.check.program import Run, steps_of
from shoal_labs.lab1.check import CHECKS
from shoal_labs.lab1.check.course import order_faults, step_faults
from shoal_labs.lab1.check.steps import SMALL, adam, adam_faults


def plain(path):
    return [[param.tolist() for param in params] for params in path]


@pytest.mark.parametrize(
    ("form", "key"),
    [
        ({}, None),
        ({"eps": 1e-6}, None),
        ({"eps": 1e-8, "before_correction": True}, None),
        ({"eps": 0.0, "inside": 1e-8}, "adam_eps_inside"),
        ({"eps": 0.0, "inside": 1e-8, "before_correction": True}, "adam_eps_inside"),
        ({"uncorrected": "v"}, "adam_small"),
    ],
)
def test_where_epsilon_is_shows_with_small_gradients(form, key):
    usual = plain(adam())
    found = adam_faults([usual, usual, plain(adam(scale=SMALL, **form))])
    assert [each.key for each in found] == ([key] if key else [])


@pytest.mark.parametrize(
    ("kind", "samples", "key"),
    [
        ("gd", 240, None),
        ("gd", 1, "gd_batches"),
        ("sgd", 32, None),
        ("sgd", 240, "sgd_whole"),
        ("adam", 240, None),
    ],
)
def test_gd_steps_with_the_whole_set_and_sgd_does_not(kind, samples, key):
    node = recorded(("pass", 240, "RandomSampler", None), *trained(samples=samples, optimizer=kind))
    found = [fault for each in steps_of(node) for fault in step_faults(kind, each)]
    assert [each.key for each in found] == ([key] if key else [])


def test_batches_of_gd_may_be_gathered_into_one_step():
    node = recorded(("pass", 240, "RandomSampler", None), ("loss", 120), ("loss", 120), step("GdOptimizer"))
    assert [each.samples for each in steps_of(node)] == [240]


@pytest.mark.parametrize(("shuffled", "keys"), [(False, ["stored_order"]), (True, [])])
def test_sgd_takes_its_samples_in_a_random_order(shuffled, keys):
    order = sorted(range(24), key=lambda index: (index * 7) % 24) if shuffled else list(range(24))
    node = recorded(("pass", 240, "RandomSampler", None), ("batch", order), ("loss", 24), step("MySGD"))
    assert [each.key for each in order_faults(Run((tuple(node),)))] == keys


def test_faults_of_adam_belong_to_its_state_or_its_step():
    (adam_check,) = [each for each in CHECKS if "adam_step" in each.tasks]
    state, move = adam_check.tasks
    for key, owner in (("adam_shared", state), ("adam_eps_inside", move), ("adam_uncorrected", move)):
        found = adam_faults_of(adam_check, key)
        assert {task for task, own in found.items() if own} == {owner}


def adam_faults_of(check, key):
    return {task: check.of_task(task, [fault(key, size=1)], "") for task in check.tasks}


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ("p.data -= step  # Task adam_step: …", "not_reached"),
        ('raise NotImplementedError("Task adam_step: …")', "not_done"),
    ],
)
def test_a_step_that_is_written_is_not_tested_without_its_state(source, key):
    (check,) = [each for each in CHECKS if "adam_step" in each.tasks]
    faults = [fault("not_done", functions="__init__")]
    assert [each.key for each in check.of_task("adam_step", faults, source)] == [key]
    assert [each.key for each in check.of_task("adam_state", faults, source)] == ["not_done"]
