"""`ddp` beyond equality: what a user notices when something is missing, empty, early or of another kind."""

from functools import partial

import pytest
import torch
from strategy_cases import BATCH, OPTIMIZERS, made, network, on_threads, replica, share, single, train
from torch import nn

from shoal.comm.threads.group import ThreadGroup, run_threads
from shoal.comm.traced import traced
from shoal.errors import ConfigError, DivergedError, ShoalError
from shoal.strategies.buckets.reducer import Reducer, ReducerOptions
from shoal.strategies.ddp.ddp import Ddp
from shoal.strategies.ddp.settings import DdpConfig
from shoal.strategies.exchange.exchange import AllReduce
from shoal.strategies.pieces.piece import by_name

ZERO = DdpConfig(unused="zero", bucket_mib=1e-4)


class Forked(nn.Module):
    """Takes the left way or, if a sample says so, the right one; a third way is never taken."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.never = nn.Linear(6, 5), nn.Linear(6, 5), nn.Linear(6, 5)

    def forward(self, inputs):
        return self.right(inputs) if inputs[0, 0] > 100 else self.left(inputs)


class Detour(nn.Module):
    """Always the left way, and the right one too if a sample says so."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(6, 5), nn.Linear(6, 5)

    def forward(self, inputs):
        outputs = self.left(inputs)
        return outputs + self.right(inputs) if inputs[0, 0] > 100 else outputs


def step(group, network, config, to_the_right=(), early=False):
    group.overlaps = early
    mine = replica(OPTIMIZERS["adamw"], network=network)
    strategy = made(Ddp, config, mine, group)
    before = {name: param.clone() for name, param in mine.params.items()}
    part = share(0, 6 * group.rank, 6)
    if group.rank in to_the_right:
        part.parts[0].inputs[:, 0] = 1000.0
    strategy.step(part, 0.1)
    return {name: not torch.equal(before[name], param) for name, param in mine.params.items()}


@pytest.mark.parametrize("early", [False, True])
def test_a_parameter_without_gradient_is_named_on_every_worker(early):
    with pytest.raises(
        ConfigError, match=r"no gradient reached 'right.weight', 'right.bias' on rank \d"
    ) as raised:
        on_threads(2, lambda group: step(group, Detour, DdpConfig(bucket_mib=1e-4), early=early))
    assert "(2 of 4 parameters)" in raised.value.message
    assert 'unused="zero"' in raised.value.hint


@pytest.mark.parametrize("early", [False, True])
def test_when_one_worker_alone_lacks_it_the_others_hear_of_it(early):
    said = {}

    def work(group):
        try:
            step(group, Detour, DdpConfig(bucket_mib=1e-4), to_the_right=(0, 1), early=early)
        except ShoalError as error:
            said[group.rank] = error.message
            raise

    with pytest.raises(ShoalError):
        run_threads(3, work, limit_s=5)
    for rank in range(3):
        assert "no gradient reached 'right.weight', 'right.bias' on rank 2 (2 of 4 parameters)" in said[rank]


@pytest.mark.parametrize("early", [False, True])
def test_zero_on_request_and_what_no_worker_used_is_left_alone(early):
    changes = on_threads(2, lambda group: step(group, Forked, ZERO, to_the_right=(1,), early=early))
    for changed in changes:
        assert changed == {
            f"{way}.{kind}": way != "never"
            for way in ("left", "right", "never")
            for kind in ("weight", "bias")
        }


def test_frozen_parameters_take_no_part():
    def frozen():
        model = network()
        model[0].weight.requires_grad_(False)
        return model

    def work(group):
        mine = replica(OPTIMIZERS["sgd"], network=frozen)
        before = mine.model[0].weight.clone()
        history = train(made(Ddp, DdpConfig(), mine, group), (6, 6), steps=2)
        return torch.equal(before, mine.model[0].weight), history

    expected = train(single(replica(OPTIMIZERS["sgd"], network=frozen)), (BATCH,), steps=2)
    for stayed, history in on_threads(2, work):
        assert stayed
        torch.testing.assert_close(history[-1][0], expected[-1][0], rtol=1e-12, atol=0)


def test_alone_it_is_single_without_a_hook_or_a_bucket():
    group = traced(ThreadGroup.world(1)[0])
    mine = replica(OPTIMIZERS["adam"])
    expected = train(single(replica(OPTIMIZERS["adam"])), (BATCH,))
    history = train(made(Ddp, DdpConfig(), mine, group), (BATCH,))
    assert not group.totals
    assert all(param._post_accumulate_grad_hooks is None for param in mine.params.values())
    for (pieces, loss, _), (wanted, wanted_loss, _) in zip(history, expected, strict=True):
        assert loss == wanted_loss
        assert all(torch.equal(pieces[name], wanted[name]) for name in wanted)


def test_bad_numbers_end_the_run_before_the_update():
    def work(group):
        mine = replica(OPTIMIZERS["sgd"])
        strategy = made(Ddp, DdpConfig(), mine, group)
        before = {name: param.clone() for name, param in mine.params.items()}
        part = share(0, 6 * group.rank, 6)
        if group.rank == 1:
            part.parts[0].inputs[0, 0] = torch.nan
        with pytest.raises(DivergedError, match="rank 1's"):
            strategy.step(part, 0.1)
        return all(torch.equal(before[name], param) for name, param in mine.params.items())

    assert on_threads(2, work) == [True, True]


def test_a_step_left_out_leaves_weights_and_gradients_in_order():
    def work(group):
        mine = replica(OPTIMIZERS["sgd"])
        strategy = made(Ddp, DdpConfig(), mine, group, on_nonfinite="skip")
        bad = share(0, 6 * group.rank, 6)
        if group.rank == 1:
            bad.parts[0].inputs[0, 0] = torch.nan
        with pytest.warns(UserWarning, match="left out") if group.rank == 0 else _nothing():
            strategy.step(bad, 0.1)
        strategy.step(share(1, 6 * group.rank, 6), 0.1)
        return {name: param.clone() for name, param in mine.params.items()}

    alone = single(replica(OPTIMIZERS["sgd"]))
    alone.step(share(1, 0, BATCH), 0.1)
    for params in on_threads(2, work):
        for name, param in params.items():
            torch.testing.assert_close(param, by_name(alone.pieces())[f"model.{name}"], rtol=1e-12, atol=0)


class _nothing:  # noqa: N801
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def test_buffers_are_rank_0s_after_every_step():
    def with_norm():
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 5))

    def work(group):
        mine = replica(OPTIMIZERS["sgd"], network=with_norm)
        strategy = made(Ddp, DdpConfig(), mine, group)
        own = []
        for number in range(3):
            mine.model[1].register_forward_hook(lambda m, *_: own.append(m.running_mean.clone()))
            strategy.step(share(number, 6 * group.rank, 6), 0.1)
        return own[-1], mine.model[1].running_mean.clone(), mine.model[1].num_batches_tracked.item()

    (own, first, batches), (other, second, _) = on_threads(2, work)
    assert batches == 3
    assert not torch.equal(own, other)
    assert torch.equal(first, own)
    assert torch.equal(second, own)


def test_early_buckets_follow_the_order_in_which_gradients_come():
    """The model uses its layers the other way round than it names them: after one step the buckets know."""

    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.last, self.middle, self.first = nn.Linear(8, 5), nn.Linear(8, 8), nn.Linear(6, 8)

        def forward(self, inputs):
            return self.last(self.middle(self.first(inputs)))

    starts = []

    class Noting(AllReduce):
        def __call__(self, group, bucket):
            if group.rank == 0:
                final = [name for name, param in params.items() if param.grad is not None]
                starts.append(len(final))
            return super().__call__(group, bucket)

    params = {}

    def work(group):
        group.overlaps = True
        mine = replica(OPTIMIZERS["sgd"], network=Backwards)
        if group.rank == 0:
            params.update(mine.params)
        strategy = made(Ddp, DdpConfig(bucket_mib=1e-4, first_bucket_mib=1e-5), mine, group, Noting())
        for number in range(2):
            strategy.step(share(number, 6 * group.rank, 6), 0.1)

    on_threads(2, work)
    half = len(starts) // 2
    assert starts[0] >= 5, "planned by names, the first bucket waits for the first layer's gradients"
    assert starts[half] <= 2, "planned by the order seen, it goes while others are still to come"


@pytest.mark.parametrize("early", [False, True])
def test_the_losses_travel_with_the_gradients(early):
    """One collective per bucket and step, and nothing else."""

    def work(group):
        group.overlaps = early
        counted = traced(group)
        strategy = made(
            Ddp, DdpConfig(bucket_mib=1e-4, first_bucket_mib=1e-4), replica(OPTIMIZERS["sgd"]), counted
        )
        losses = []
        for number in range(3):
            before = {name: total.calls for name, total in counted.totals.items()}
            losses.append(strategy.step(share(number, 6 * group.rank, 6), 0.1).loss.item())
        made_now = {
            n: t.calls - before.get(n, 0) for n, t in counted.totals.items() if t.calls - before.get(n, 0)
        }
        return made_now, losses

    alone = single(replica(OPTIMIZERS["sgd"]))
    wanted = [alone.step(share(number, 0, BATCH), 0.1).loss.item() for number in range(3)]
    for calls, losses in on_threads(2, work):
        assert calls == {"all_reduce": 2}, "as many as there are buckets"
        assert losses == pytest.approx(wanted, rel=1e-12)


def test_sparse_gradients_are_refused_by_name():
    def work(group):
        table = nn.Embedding(10, 3, sparse=True)
        reducer = Reducer(
            group,
            {"table": table.weight},
            lambda param, callback: param.register_post_accumulate_grad_hook(callback).remove,
            partial(AllReduce(), group),
            ReducerOptions(first_bytes=10, most_bytes=10),
        )
        reducer.prepare()
        table(torch.tensor([1])).sum().backward()
        reducer.complete()

    with pytest.raises(ConfigError, match="'table' has a sparse gradient"):
        run_threads(1, work)
