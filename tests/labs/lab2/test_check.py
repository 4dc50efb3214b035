"""The check of a program in the course's form: records of two nodes that are right, or wrong in one place."""

import pytest
from recorded import PASS, recorded, trained

from shoal_labs.check.program import Run, steps_of
from shoal_labs.lab2.check.course import (
    average_faults,
    bottleneck_seen,
    branch_faults,
    exchange_faults,
    may_be_slow,
    one_method_faults,
    seconds_faults,
    timed_faults,
    variations,
)

REDUCED = ("collective", "all_reduce", 0)
GATHERED = ("collective", "all_gather", 0)
SLEEP = ("sleep", 0.1)


def nodes(*others):
    """Two nodes, the first of which averages and steps; the second does something else."""
    usual = trained(REDUCED)
    return [steps_of(recorded(PASS, *usual, *usual)), steps_of(recorded(PASS, *others, *others))]


@pytest.mark.parametrize(
    ("second", "keys"),
    [
        (trained(SLEEP, REDUCED), [None]),
        (trained(REDUCED, before=(SLEEP,)), [None]),
        (trained(REDUCED, SLEEP), ["sleeps_after"]),
        (trained(REDUCED, after=(SLEEP,)), ["sleeps_after"]),
        (trained(REDUCED), []),
        (trained(REDUCED, samples=32), [None]),
        (trained(REDUCED, calls=150), [None]),
    ],
)
def test_a_slow_node_is_seen_and_must_be_slow_before_the_collective(second, keys):
    assert [each and each.key for each in bottleneck_seen(nodes(*second))] == keys


def test_a_sleep_between_steps_without_a_loader_is_not_judged():
    second = [each for each in trained(REDUCED, after=(SLEEP,)) if each[0] != "batch"]
    assert bottleneck_seen(nodes(*second)) == [None]


@pytest.mark.parametrize(
    ("between", "key"),
    [
        ((REDUCED, ("collective", "all_reduce", 1)), None),
        ((REDUCED, GATHERED), None),
        ((REDUCED, REDUCED), "averaged_twice"),
        ((REDUCED, REDUCED, REDUCED), None),
        ((("collective", "all_reduce", -1), ("collective", "all_reduce", -1)), None),
        ((REDUCED, ("unwaited", ["train"])), "unwaited"),
        ((REDUCED, ("unwaited", ["allreduce_average_gradients", "train"])), None),
    ],
)
def test_gradients_are_averaged_once_and_waited_for(between, key):
    found = average_faults([steps_of(recorded(PASS, *trained(*between)))])
    assert [each.key for each in found] == ([key] if key else [])


@pytest.mark.parametrize(
    ("early", "between", "after", "key"),
    [
        (("clock",), (REDUCED, "clock"), (), "backward_timed"),
        (("mark",), (REDUCED, "mark"), (), "backward_timed"),
        (("clock",), ("clock", REDUCED, "clock"), (), None),
        (("clock",), (REDUCED,), ("clock",), None),
        ((), (REDUCED, "clock"), (), None),
    ],
)
def test_a_clock_is_started_after_the_backward_pass(early, between, after, key):
    batch = trained(*between, before=early, after=after)
    found = timed_faults([steps_of(recorded(PASS, *batch, *batch))])
    assert [each.key for each in found] == ([key] if key else [])


@pytest.mark.parametrize(
    ("slowed", "named"),
    [((REDUCED, GATHERED), None), ((REDUCED,), "all_reduce"), ((GATHERED,), "all_gather"), ((), None)],
)
def test_a_node_is_slow_with_both_collectives(slowed, named):
    usual = [trained(each) for each in (REDUCED, REDUCED, GATHERED)]
    second = [trained(*([SLEEP] if each in slowed else []), each) for each in (REDUCED, REDUCED, GATHERED)]
    both = [
        steps_of(recorded(PASS, *(event for each in steps for event in each))) for steps in (usual, second)
    ]
    assert [each.values["named"] for each in one_method_faults([both])] == ([named] if named else [])


@pytest.mark.parametrize(
    ("between", "key"),
    [
        (("wait", "clock", REDUCED, "wait", "clock"), None),
        (("clock", REDUCED, "clock"), "not_synchronised"),
        (("clock", REDUCED, "wait", "clock"), "queue_timed"),
        ((REDUCED,), None),
    ],
)
@pytest.mark.parametrize("on_gpu", [True, False])
def test_clocks_are_read_when_the_gpu_is_done(between, key, on_gpu):
    node = recorded(*(["gpu"] if on_gpu else []), PASS, *trained(*between))
    found = seconds_faults(Run((tuple(node),)), [steps_of(node)])
    assert [each.key for each in found] == ([key] if key and on_gpu else [])


@pytest.mark.parametrize(
    ("second", "key"),
    [
        (trained(REDUCED), None),
        (trained(REDUCED, params=3.0), "other_starts"),
    ],
)
def test_nodes_keep_the_same_parameters(second, key):
    assert [each.key for each in exchange_faults(nodes(*second))] == ([key] if key else [])


def test_nodes_that_exchange_nothing_or_too_late():
    apart = [
        [steps_of(recorded(PASS, *trained(params=value), *trained(params=value))) for value in (1.0, 2.0)]
    ]
    assert [each.key for each in exchange_faults(apart[0])] == ["never_exchanged"]
    late = [
        steps_of(
            recorded(PASS, *trained(params=2.0, after=(REDUCED,)), *trained(params=value, after=(REDUCED,)))
        )
        for value in (2.5, 3.0)
    ]
    assert [each.key for each in exchange_faults(late)] == ["step_before_average"]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("if m == 'allreduce':\n    allreduce(model)\nelse:\n    allgather(model)\n", []),
        ("if m == 'allreduce':\n    u.allgather_average(model)\n", ["branch"]),
        ("table = {'allreduce': allgather_average, 'allgather': allgather_average}\n", ["branch"]),
        ("if m != 'allreduce':\n    allgather(model)\n", []),
        ("if not allreduce:\n    allgather(model)\n", []),
        ("if m == 'reduce':\n    allgather(model)\n", []),
        ("if (:\n", []),
    ],
)
def test_a_branch_must_call_what_it_names(tmp_path, source, found):
    (tmp_path / "model.py").write_text(source)
    assert [each.key for each in branch_faults(tmp_path)] == found


@pytest.mark.parametrize(
    ("files", "slow"),
    [
        ({"model.py": "# time.sleep(1) makes a bottleneck\nbottleneck = True\n"}, False),
        ({"model.py": "if rank == 7:\n    time.sleep(1)\n"}, True),
        ({"model.py": "x = 1\n", "slow.py": "def bottleneck():\n    pass\n"}, True),
        ({"model.py": "x = 1\n", "docker-compose.yml": "services:\n  node02:\n    cpus: 0.5\n"}, True),
    ],
)
def test_a_slow_node_may_be_where_no_run_shows_it(tmp_path, files, slow):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert may_be_slow(tmp_path) is slow


def test_flags_for_a_slow_node_are_given_together_and_with_each_method():
    options = [
        {"name": "rank", "kind": "int", "choices": [], "default": 0},
        {"name": "slow_rank", "kind": "int", "choices": [], "default": -1},
        {"name": "delay", "kind": "float", "choices": [], "default": 0.0},
        {"name": "method", "kind": "str", "choices": ["a", "b", "c"], "default": "a"},
    ]
    slow = {"slow_rank": 1, "delay": 0.05}
    assert variations(options) == [slow, {**slow, "method": "b"}, {**slow, "method": "c"}]
