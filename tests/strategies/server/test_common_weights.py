"""One copy of the weights that all workers update, each with the gradients that its own backward pass has left."""

import torch
from strategy_cases import OPTIMIZERS, on_threads, replica, share

from shoal.strategies.server.common_weights import CommonWeights


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
