"""`rpc` equals one machine after every step, in float64; its state is saved by some workers and loaded by others.

The workers are processes, and new ones for every test: torch's RPC can be started once in each.
"""

import pytest
import rpc_cases as cases
from group_worlds import World
from strategy_cases import (
    OPTIMIZERS,
    assert_close_states,
    rate,
    replica,
    single,
    state_of,
)

from shoal.training import checkpoint

pytestmark = pytest.mark.timeout(120)


def run(size, work, *arguments):
    """What each worker's `work(group, …)` returned."""
    with World("shm", size, limit_s=60.0) as world:
        outcomes = world.run(work, *arguments)
    assert [outcome.message for outcome in outcomes if outcome.error or outcome.gone] == []
    return [outcome.value for outcome in outcomes]


CASES = [
    (3, 1, "gd"),
    (3, 1, "sgd"),
    (3, 1, "adam"),
    (3, 4, "adamw"),
    (3, 4, "sgd"),
    (2, 1, "adamw"),
    (2, 4, "adam"),
    (4, 5, "gd"),
]
"""Workers, micro-batches, optimizer."""


@pytest.mark.parametrize(("size", "microbatches", "optimizer"), CASES)
def test_equals_one_machine(size, microbatches, optimizer):
    found = run(size, cases.history, optimizer, {"microbatches": microbatches})[0]
    reference = single(replica(OPTIMIZERS[optimizer], network=cases.plain))
    assert len(found) == cases.LAST
    for step, (state, loss) in enumerate(found):
        expected = reference.step(cases.batch(step), rate(step)).loss.item()
        assert abs(loss - expected) <= 1e-12 * abs(expected)
        assert_close_states(state, state_of(reference), f"after step {step}")


def test_each_stage_saves_its_own_and_others_go_on_from_there(tmp_path):
    names = run(3, cases.save, tmp_path)
    assert names[0] == []  # the driver holds no layers
    assert set(names[1]).isdisjoint(names[2])
    reference = single(replica(OPTIMIZERS["adam"], seed=5, network=cases.with_statistics))
    saved = checkpoint.latest(tmp_path).pieces()
    assert sorted(saved) == sorted(names[1] + names[2])
    reference.load(saved)
    for step in range(cases.FIRST, cases.LAST):
        reference.step(cases.batch(step), rate(step))
    state = run(2, cases.load, tmp_path)[0]
    assert_close_states(state, state_of(reference), "at the end")


def test_the_driver_evaluates_and_each_worker_counts_what_it_sends():
    found = run(3, cases.evaluate)
    reference = single(replica(OPTIMIZERS["sgd"], network=cases.plain))
    (batch,) = cases.batch(0).parts
    expected = reference.evaluate(batch)
    loss, correct, predictions, samples = found[0][1]
    assert loss == pytest.approx(expected.loss.item(), rel=1e-12)
    assert (correct, predictions, samples) == (expected.correct.item(), 12, 12)
    inputs, hidden, outputs = (12 * width * 8 for width in (6, 8, 5))
    assert [sent for sent, _ in found] == [
        inputs + outputs,  # and the gradient of the outputs
        hidden,
        outputs + hidden,  # and the gradient of the second stage's inputs
    ]


@pytest.mark.filterwarnings("ignore:the norm of")
def test_numbers_that_are_not_finite_never_reach_the_weights():
    changed = run(3, cases.spoiled)
    assert set(changed[1].values()) == {0}
    assert sum(changed[2].values()) == 1  # the NaN itself


def test_a_stop_signal_of_a_stage_reaches_the_driver_and_stages_log_the_step():
    driver, first, last = run(3, cases.stopped)
    assert driver[0] == 15
    assert first == last == [(driver[1], 12, 0.1)]


def test_a_stage_that_is_lost_at_shutdown_is_named_and_nothing_hangs():
    with World("shm", 3, limit_s=60.0) as world:
        driver, first, _ = world.run(cases.lost_at_the_end, victim=2)
    for found in (driver, first):
        assert (found.error, found.rank, found.reason) == ("MemberError", 2, "died")
        assert "rank 2 died before" in found.message
    assert "rank 2 died before the end of all calls" in driver.message


@pytest.mark.parametrize("kind", ["shm", "gloo"])
def test_a_member_that_is_gone_is_named_outside_of_the_groups_calls(kind):
    with World(kind, 2, limit_s=60.0) as world:
        found, _ = world.run(cases.watch, victim=1)
    assert (found.error, found.rank, found.reason) == ("MemberError", 1, "died")
    assert "rank 1 died before an answer" in found.message
