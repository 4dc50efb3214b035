"""The checks of Lab 3: one wrong line of a sampler costs its own task; programs in the course's form."""

import sys

import pytest
from course_programs import SAMPLER
from recorded import recorded, trained

from shoal_labs.check.program import steps_of
from shoal_labs.lab3.check.course import exchange_faults, passes_faults
from shoal_labs.lab3.check.samplers import sampler_faults

TASKS = ("set_epoch", "length", "random_partition")
WRONG = {
    "set_epoch": ("self.epoch = epoch", "epoch = epoch"),
    "length": ("        return self.num_samples\n", "        return self.num_samples // 2\n"),
    "random_partition": ("indices[self.rank::self.num_replicas]", "indices[:self.num_samples]"),
}


@pytest.mark.parametrize("task", [None, *TASKS])
def test_a_wrong_line_costs_its_own_task(tmp_path, monkeypatch, task):
    old, new = WRONG.get(task, ("", ""))
    (tmp_path / "sampler.py").write_text(SAMPLER.replace(old, new))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sampler", raising=False)
    try:
        assert {each for each in TASKS if sampler_faults(each)} == ({task} if task else set())
    finally:
        sys.modules.pop("sampler", None)


def passes(*orders, seed=0):
    """A node that trains on the samples of each pass."""
    return recorded(
        *(
            event
            for order in orders
            for event in (("pass", 8, "MySampler", seed), ("batch", order), *trained(samples=4)[1:])
        )
    )


@pytest.mark.parametrize(
    ("nodes", "keys"),
    [
        ([passes([0, 5, 2, 7], [3, 1, 6, 4]), passes([1, 3, 6, 4], [0, 2, 5, 7])], []),
        ([passes([0, 5, 2, 7], [0, 5, 2, 7]), passes([1, 3, 6, 4], [1, 3, 6, 4])], ["set_epoch_not_called"]),
        ([passes([0, 5, 2, 7], seed=0), passes([1, 5, 6, 4], seed=1)], ["seed_by_rank"]),
        ([passes([0, 5, 2, 7], seed=0), passes([1, 3, 6, 4], seed=1)], []),
        ([passes([0, 5, 2, 7]), passes([1, 5, 6, 4])], []),  # the sampler itself is wrong: another task
    ],
)
def test_passes_divide_one_permutation_and_another_one_in_every_epoch(nodes, keys):
    assert [each.key for each in passes_faults(nodes)] == keys


@pytest.mark.parametrize(
    ("first", "second", "keys"),
    [
        ({"samples": 8, "own": 1.0}, {"samples": 8, "own": 3.0, "grads": 2.0}, []),
        ({"samples": 2, "own": 1.0}, {"samples": 6, "own": 3.0, "grads": 2.0}, ["mean_of_means"]),
        ({"samples": 2, "own": 1.0}, {"samples": 6, "own": 3.0, "grads": 2.5}, []),
        ({"samples": 8}, {"samples": 8, "params": 7.0}, ["nodes_differ"]),
    ],
)
def test_nodes_step_with_the_mean_over_all_samples(first, second, keys):
    grads = second.get("grads", 1.0)
    nodes = [steps_of(recorded(*trained(**{**given, "grads": grads}))) for given in (first, second)]
    assert [each.key for each in exchange_faults(nodes)] == keys
