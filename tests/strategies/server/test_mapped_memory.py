"""Memory that workers and server map: one copy of the weights, and a bell that wakes the one rank that sleeps."""

import torch
from strategy_cases import OPTIMIZERS, on_threads, replica, share

from shoal.comm.threads.group import run_threads
from shoal.strategies.server.mapped import Bell, CommonWeights

LONG_S = 3600.0


def test_a_ring_ends_the_wait_under_way_and_one_before_it_the_next():
    def work(group):
        bell = Bell(group, owner=1)
        if group.rank == 1:
            bell.wait(LONG_S)
            group.barrier().wait()
            bell.wait(LONG_S)
        else:
            bell.ring()
            group.barrier().wait()
            bell.ring()

    run_threads(2, work)


def test_a_wait_ends_without_a_ring_and_a_ring_without_an_owner():
    def work(group):
        bell = Bell(group, owner=1)
        if group.rank == 1:
            bell.wait(0.001)
            del bell
        group.barrier().wait()
        if group.rank == 0:
            bell.ring()

    run_threads(2, work)


def test_an_update_uses_gradients_where_backward_has_put_them():
    def work(group):
        mine = replica(OPTIMIZERS["gd"])
        common = CommonWeights(mine.layout, group)
        mine.layout.gradients(share(0, 0, 12))
        assert common.take_gradients() == []
        for gradient, param in zip(common.gradients, mine.params.values(), strict=True):
            assert gradient.data_ptr() == param.grad.data_ptr()
        common.drop_gradients()
        return common.gradients

    assert on_threads(1, work) == [[]]


def test_all_workers_read_what_one_has_updated():
    def work(group):
        mine = replica(OPTIMIZERS["gd"], seed=group.rank)
        common = CommonWeights(mine.layout, group)
        update = mine.update.of(common)
        common.read()
        before = {name: param.detach().clone() for name, param in mine.params.items()}
        group.barrier().wait()
        if group.rank == 1:
            mine.layout.gradients(share(0, 0, 12))
            common.take_gradients()
            update.without_clipping(0.1)
        group.barrier().wait()
        common.read()
        return before, {name: param.detach().clone() for name, param in mine.params.items()}

    (before, after), (same, also) = on_threads(2, work)
    for name in before:
        assert torch.equal(before[name], same[name]), "all start with rank 0's"
        assert torch.equal(after[name], also[name])
        assert not torch.equal(before[name], after[name])


def test_a_parameter_without_a_gradient_is_named_and_skipped():
    def work(group):
        mine = replica(OPTIMIZERS["sgd"])  # its weight decay would change a parameter whose gradient is zero
        common = CommonWeights(mine.layout, group)
        mine.layout.gradients(share(0, 0, 12))
        mine.params["2.bias"].grad = None
        before = mine.params["2.bias"].detach().clone()
        missing = common.take_gradients()
        mine.update.of(common).without_clipping(0.1)
        common.read()
        return missing, torch.equal(mine.params["2.bias"], before)

    assert on_threads(1, work) == [(["2.bias"], True)]
