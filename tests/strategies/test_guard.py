"""Gradients that are not finite: found, named, stopped or left out or tolerated, before they reach the weights."""

import math
import warnings

import pytest
import torch

from shoal.comm.alone import alone
from shoal.comm.mesh import Mesh
from shoal.comm.threads.group import ThreadGroup, run_threads
from shoal.errors import ConfigError, DivergedError, NothingCountedError
from shoal.strategies.exchange.exchange import AllReduce
from shoal.strategies.exchange.rules import ROBUST, Robust
from shoal.strategies.guard import ROW, Guard, square_of
from shoal.strategies.not_finite import Remedies
from shoal.strategies.strategy import Share

TOLERATES_ONE = Robust(ROBUST["median"], bad=1)


def share(part=1.0, stop_signal=0):
    return Share([], 1000, int(1000 * part), stop_signal)


def agreed(gradients, losses=None, exchange=None, policy="stop", parts=None):
    """What the guards of all workers say of one step; gradient i is worker i's."""
    size = len(gradients)

    def work(group):
        guard = Guard(group, exchange or AllReduce(), policy)
        guard.look(torch.tensor(gradients[group.rank]))
        loss = torch.tensor((losses or [0.5] * size)[group.rank])
        return guard.agree(loss, share((parts or [1 / size] * size)[group.rank]))

    answers = run_threads(size, work)
    losses = {verdict.loss.item() for verdict in answers}
    verdicts = {verdict.may_update for verdict in answers}
    assert len(losses) == len(verdicts) == 1, "all workers decide alike"
    return losses.pop(), verdicts.pop()


def test_good_gradients_pass_and_losses_are_summed():
    assert agreed([[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]], [0.5, 0.25, 0.0]) == (0.75, True)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e30])
def test_the_worker_is_named_and_no_worker_updates(bad):
    with pytest.raises(DivergedError, match=r"the norm of rank 1's gradient is (nan|inf)") as raised:
        agreed([[3.0, 4.0], [1.0, bad], [1.0, 1.0]])
    assert "(the largest of the others is 5)" in raised.value.message
    assert "stopped before it reached the weights" in raised.value.message


def test_a_loss_that_is_not_finite_is_bad_too():
    with pytest.raises(DivergedError, match=r"^rank 0's loss is inf \(the largest of the others is 1\)"):
        agreed([[1.0], [1.0]], [math.inf, 0.5])
    with pytest.raises(DivergedError, match="the norm of rank 0's gradient is inf and its loss nan"):
        agreed([[math.inf], [1.0]], [math.nan, 0.5])


def test_several_bad_workers_are_all_named():
    with pytest.raises(DivergedError, match="rank 0's and rank 2's gradient is nan and inf"):
        agreed([[math.nan], [1.0], [math.inf]])


def test_by_policy_the_step_is_left_out():
    with pytest.warns(UserWarning, match="rank 1's gradient is nan .*: the step is left out"):
        loss, may_update = agreed([[1.0], [math.nan]], [0.25, 0.25], policy="skip")
    assert not may_update
    assert loss == 0.5, "the good worker's loss stands for both"


def test_as_many_as_the_exchange_tolerates_are_left_to_it():
    with pytest.warns(UserWarning, match="rank 2's gradient is inf .*: the exchange leaves it out"):
        _, may_update = agreed([[1.0], [1.0], [math.inf]], exchange=TOLERATES_ONE)
    assert may_update


def test_more_than_it_tolerates_are_refused():
    with pytest.raises(DivergedError, match=r"rank 1's and rank 2's .*\(the exchange tolerates 1\): stopped"):
        agreed([[1.0], [math.nan], [math.inf]], exchange=TOLERATES_ONE)


def test_a_bad_workers_part_of_the_loss_is_taken_from_the_others():
    with pytest.warns(UserWarning, match="rank 2"):
        loss, _ = agreed(
            [[1.0], [1.0], [math.nan]], [0.1, 0.3, math.nan], policy="skip", parts=[0.25, 0.5, 0.25]
        )
    assert loss == pytest.approx(0.4 / 0.75)


def test_where_no_worker_knows_the_loss_the_last_one_stands():
    (alone,) = ThreadGroup.world(1)
    guard = Guard(alone, AllReduce(), "skip")
    guard.look(torch.ones(2))
    assert guard.agree(torch.tensor(0.5), share()).may_update
    guard.look(torch.tensor([math.nan]))
    with pytest.warns(UserWarning, match="the step is left out"):
        loss, may_update, *_ = guard.agree(torch.tensor(math.nan), share())
    assert (loss.item(), may_update) == (0.5, False)
    guard.look(torch.ones(2))
    assert guard.agree(torch.tensor(0.25), share())[:3] == (0.25, True, 0), "a step forgets the one before"


def test_it_is_said_once_and_every_tenfold_again():
    (alone,) = ThreadGroup.world(1)
    guard = Guard(alone, AllReduce(), "skip")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(99):
            guard.look(torch.tensor([math.nan]))
            guard.agree(torch.tensor(0.5), share())
    assert [str(warning.message).rpartition(": ")[2] for warning in said] == [
        "the step is left out",
        "the step is left out (10 times so far)",
    ]


def test_a_gradient_that_dwarfs_the_others_is_mentioned_and_let_pass():
    with pytest.warns(UserWarning, match=r"rank 1's gradient is 1e\+06, and the largest of the others 1:"):
        assert agreed([[1.0], [1e6]])[1]


@pytest.mark.parametrize("gradients", [[[1.0], [100.0]], [[0.0], [1e6]], [[1e6]]])
def test_what_is_merely_larger_is_not(gradients):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "the norm of")
        assert agreed(gradients)[1]


def test_sums_of_large_numbers_do_not_overflow_unseen():
    """Each of them is finite, and so are their squares; four together still are."""
    assert agreed([[1e18]] * 4)[1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_kinds_of_numbers(dtype):
    (alone,) = ThreadGroup.world(1)
    guard = Guard(alone, AllReduce(), "stop")
    guard.look(torch.full((70_000,), 2.0, dtype=dtype))
    assert guard.agree(torch.tensor(0.5), share()).may_update
    guard.look(torch.full((3,), math.inf, dtype=dtype))
    with pytest.raises(DivergedError):
        guard.agree(torch.tensor(0.5), share())


def test_gradients_whose_squares_add_up_beyond_float32_are_bad():
    """Each square is finite. On a replica of one worker, and of two that divide it."""
    huge = torch.full((3,), 1e19)

    def work(group):
        mesh = Mesh(group, {"data": 1, "pipeline": 2})
        for guard in (
            Guard(alone(), AllReduce(), "stop"),
            Guard(alone(), AllReduce(), "stop", [mesh.axis("pipeline")]),
        ):
            guard.look(huge, huge)
            with pytest.raises(DivergedError, match="gradient is inf"):
                guard.agree(torch.tensor(0.5), share())

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_threads(2, work)


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_worker_that_decides_alone_warns_itself_and_otherwise_rank_0_does(is_alone):
    _, other = ThreadGroup.world(2)
    guard = Guard(other, AllReduce(), "skip")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        rows = [[0.25, 0.5, 1.0, 0.0], [0.25, 0.5, math.nan, 15.0]]
        verdict = guard.decide(rows, torch.tensor(0.0), is_alone=is_alone)
    assert (verdict.loss.item(), verdict.may_update, verdict.stop_signal) == (0.5, False, 15)
    assert len(said) == is_alone


def test_a_report_has_what_was_measured_since_the_last_one():
    guard = Guard(alone(), AllReduce(), "stop")
    guard.look(torch.tensor([3.0, 4.0]), torch.tensor([[1.0]]))
    guard.look(torch.tensor([2.0]))
    assert guard.row(torch.tensor(0.5), share(0.25, stop_signal=2)) == (0.5, 0.25, 30.0, 2.0)
    assert guard.sees_finite
    guard.look(torch.tensor([math.nan]))
    guard.look(torch.tensor([1.0]))
    assert not guard.sees_finite
    guard.row(torch.tensor(0.5), share())
    assert guard.row(torch.tensor(0.5), share()).square == 0.0


def test_any_workers_request_to_stop_reaches_all():
    def work(group):
        guard = Guard(group, AllReduce(), "stop")
        return guard.agree(torch.tensor(0.5), share(stop_signal=15 if group.rank == 1 else 0)).stop_signal

    assert run_threads(3, work) == [15, 15, 15]


def test_a_decision_on_the_device_is_read_later():
    (alone,) = ThreadGroup.world(1)
    guard = Guard(alone, AllReduce(), "stop")
    table, found = torch.empty(1, ROW), []
    for gradient in (1.0, math.nan):
        guard.look(torch.tensor([gradient]))
        guard.write(table, torch.tensor(0.5), share(stop_signal=2))
        found.append(guard.decide_later(table, torch.tensor(0.5)))
    table.zero_()  # the next step's
    good, bad = found
    assert (good.loss, good.is_bad, bad.is_bad) == (0.5, 0.0, 1.0)
    assert good.settle() == 2
    with pytest.raises(DivergedError, match="rank 0's gradient is nan"):
        bad.settle()


def test_in_a_mesh_the_workers_of_the_bad_replica_are_named():
    def work(group):
        mesh = Mesh(group, {"data": 2, "pipeline": 2})
        guard = Guard(mesh.axis("data"), AllReduce(), "stop", [mesh.axis("pipeline")])
        guard.look(torch.tensor([math.nan if group.rank == 3 else 1.0]))
        with pytest.raises(DivergedError, match="the norm of ranks 2–3's gradient is nan"):
            guard.agree(torch.tensor(0.5), share())

    run_threads(4, work)


def test_a_strategy_that_cannot_clip_is_not_offered_clipping():
    (alone,) = ThreadGroup.world(1)
    guard = Guard(alone, AllReduce(), "stop", remedies=Remedies(clips=False))
    guard.look(torch.tensor([math.nan]))
    with pytest.raises(DivergedError, match=r"(?s)^(?!.*clip-norm).*on_nonfinite skip"):
        guard.agree(torch.tensor(0.5), share())


def test_a_sync_without_exchanges_is_not_offered_one():
    def work(group):
        guard = Guard(group, AllReduce(), "stop", remedies=Remedies(exchanges=False))
        guard.look(torch.tensor([1e9 if group.rank else 1.0]))
        guard.agree(torch.tensor(0.5), share())

    with pytest.warns(UserWarning, match="if that is a fault, --clip-norm limits the step"):
        run_threads(2, work)


@pytest.mark.parametrize(
    ("remedies", "ending"),
    [
        (
            Remedies(),
            ": if that is a fault, --exchange robust:median tolerates it, and --clip-norm limits the step",
        ),
        (Remedies(clips=False), ": if that is a fault, --exchange robust:median tolerates it"),
        (Remedies(clips=False, exchanges=False), "the largest of the others 1"),
    ],
)
def test_a_giant_is_mentioned_with_what_the_run_supports(remedies, ending):
    def work(group):
        guard = Guard(group, AllReduce(), "stop", remedies=remedies)
        guard.look(torch.tensor([1e9 if group.rank else 1.0]))
        guard.agree(torch.tensor(0.5), share())

    with pytest.warns(UserWarning, match="rank 1's gradient") as mentioned:
        run_threads(2, work)
    assert str(mentioned[0].message).endswith(ending)


def test_a_sparse_gradient_is_refused_with_its_shape():
    """Of an embedding with sparse=True; torch's own error is about an operation of ours."""
    sparse = torch.zeros(300, 8).to_sparse()
    with pytest.raises(ConfigError, match=r"a gradient of shape \(300, 8\) is sparse"):
        square_of(sparse)


def test_the_counts_of_all_workers_divide_losses_and_gradients():
    counts = (3, torch.tensor(0), 5.0)

    def work(group):
        guard = Guard(group, AllReduce(), "stop", count_of_share=lambda: counts[group.rank])
        return guard.agree(torch.tensor(0.004, dtype=torch.float64), share())

    for verdict in run_threads(3, work):
        assert verdict.scale == 1000 / 8
        assert verdict.loss.item() == pytest.approx(0.012 * 1000 / 8)


def test_a_device_divides_by_the_count_itself_and_leaves_a_step_without_one_out():
    (alone,) = ThreadGroup.world(1)
    counts = iter([4, 0])
    guard = Guard(alone, AllReduce(), "stop", count_of_share=lambda: next(counts))
    table, found = torch.empty(1, ROW), []
    for _ in range(2):
        guard.look(torch.ones(2))
        guard.write(table, torch.tensor(0.5), share())
        found.append(guard.decide_later(table, torch.tensor(0.5)))
    good, nothing = found
    assert (good.scale, good.loss, good.is_bad, nothing.is_bad) == (250.0, 125.0, 0.0, 1.0)
    assert good.settle() == 0
    with pytest.raises(NothingCountedError):
        nothing.settle()


def test_workers_on_unequal_devices_do_not_wait_for_a_table():
    assert Guard(alone(), AllReduce(), "stop").can_wait
    assert not Guard(alone(), AllReduce(), "stop", in_step=True).can_wait
