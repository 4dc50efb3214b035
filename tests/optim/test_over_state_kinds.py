"""The state of an optimizer is known before there is any."""

import torch

from shoal import optim
from shoal.optim.over import state_bytes, state_kinds


def test_state_of_every_kind_of_optimizer():
    weight, bias = torch.zeros(20, 30), torch.zeros(7, dtype=torch.float64)
    for make, each in {
        lambda params: optim.Adam(params): 2,
        lambda params: optim.AdamW(params, fast=True): 2,
        lambda params: optim.SGD(params, lr=0.1): 0,
        lambda params: optim.SGD(params, lr=0.1, momentum=0.9): 1,
        lambda params: torch.optim.Adam(params, amsgrad=True): 3,
        lambda params: torch.optim.Adagrad(params): 1,
    }.items():
        assert [len(of_one) for of_one in state_kinds(make, [weight, bias])] == [each, each]
        assert state_bytes(make, [weight, bias]) == each * (600 * 4 + 7 * 8)


def test_groups_of_parameters_may_differ():
    def make(params):
        weight, bias = params
        return torch.optim.SGD([{"params": [weight], "momentum": 0.9}, {"params": [bias]}], lr=0.1)

    weight, bias = torch.zeros(5), torch.ones(3)
    assert state_kinds(make, [weight, bias]) == [{"momentum_buffer": torch.float32}, {}]
    assert weight.grad is None
    assert bias.equal(torch.ones(3))
