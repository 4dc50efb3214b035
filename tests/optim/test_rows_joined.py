"""Neighbours in memory are joined, and only those."""

import weakref

import torch

from shoal.optim import Adam
from shoal.optim.rows import Joins, alike, joined, zeros_beside


def test_neighbours_are_joined_whatever_their_order() -> None:
    params, grads = torch.arange(10.0), torch.arange(10.0)
    rows = [(params[a:b], grads[a:b]) for a, b in ((7, 10), (0, 3), (3, 7))]
    ((param, grad),) = joined(rows)
    assert torch.equal(param, params)
    assert param.data_ptr() == params.data_ptr()
    assert grad.data_ptr() == grads.data_ptr()


def test_strangers_are_not_joined() -> None:
    first, second = torch.zeros(9), torch.zeros(9)
    rows = [(first[:4],), (second[4:],), (torch.zeros(4),), (torch.zeros(4),)]
    assert sorted(row[0].numel() for row in joined(rows)) == [4, 4, 4, 5]


def test_a_gap_in_any_column_keeps_rows_apart() -> None:
    params, grads = torch.zeros(10), torch.zeros(11)
    rows = [(params[:5], grads[:5]), (params[5:], grads[6:])]
    assert [row[0].numel() for row in joined(rows)] == [5, 5]


def test_zeros_lie_as_their_parameters_do() -> None:
    buffer = torch.ones(20)
    params = [buffer[:6].view(2, 3).T, buffer[6:14].view(2, 4), torch.ones(3), buffer[15:]]
    zeros = zeros_beside(params)
    assert all(torch.equal(zero, torch.zeros(param.shape)) for zero, param in zip(zeros, params, strict=True))
    assert zeros[0].stride() == params[0].stride()
    ((joint,),) = joined([(zeros[0],), (zeros[1],)])
    assert joint.numel() == 14


def test_unlike_tensors_are_copied_into_the_order_of_the_first() -> None:
    first, other = torch.zeros(3, 4).T, torch.arange(12.0).view(4, 3).double()
    same, copied = alike((first, other))
    assert same is first
    assert copied.stride() == first.stride()
    assert copied.dtype == first.dtype
    assert torch.equal(copied.double(), other)


def test_parameters_in_a_flat_buffer_get_state_that_joins_with_them() -> None:
    values, grads = torch.ones(10), torch.ones(10)
    params = [values[:4].requires_grad_(), values[4:].requires_grad_()]
    for param, grad in zip(params, (grads[:4], grads[4:]), strict=True):
        param.grad = grad
    optimizer = Adam(params)
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    rows = [
        (param, optimizer.state[param]["exp_avg"], optimizer.state[param]["exp_avg_sq"]) for param in params
    ]
    assert len(joined(rows)) == 1


def test_joins_remember_gradients_that_stay_and_follow_those_that_move() -> None:
    joins = Joins()
    params, grads = torch.zeros(10), torch.zeros(10)
    rows = [(params[4:], grads[4:]), (params[:4], grads[:4])]
    first, second, third = joins(rows), joins(rows), joins(rows)
    assert third is second is not first
    ((_, grad),) = third
    assert grad.data_ptr() == grads.data_ptr()
    other = torch.ones(10)
    ((_, grad),) = joins([(params[4:], other[4:]), (params[:4], other[:4])])
    assert grad.data_ptr() == other.data_ptr()
    assert len(joins([(params[4:], torch.ones(6)), (params[:4], other[:4])])) == 2


def test_joins_keep_no_gradient_that_is_dropped() -> None:
    joins, params = Joins(), torch.zeros(10)
    for _ in range(3):
        grads = torch.ones(10)
        dropped = weakref.ref(grads)
        assert len(joins([(params[:4], grads[:4]), (params[4:], grads[4:])])) == 1
        del grads
        assert dropped() is None


def test_the_fast_step_uses_new_gradients_and_weights_wherever_they_are() -> None:
    values = torch.ones(10)
    params = [values[:4].requires_grad_(), values[4:].requires_grad_()]
    twins = [param.detach().clone().requires_grad_() for param in params]
    ours, reference = Adam(params, fast=True), Adam(twins, fast=True)
    for step in range(4):
        grads = torch.linspace(-1, 1 + step, 10)
        for param, twin, part in zip(params, twins, grads.split([4, 6]), strict=True):
            param.grad, twin.grad = part, part.clone()
        if step == 2:
            values = values.detach().clone()
            params[0].data, params[1].data = values[:4], values[4:]
        ours.step()
        reference.step()
    assert all(torch.allclose(param, twin) for param, twin in zip(params, twins, strict=True))
    assert torch.equal(values, torch.cat([param.detach() for param in params]))
