"""State that arrives in an unusual form is taken as it is."""

import copy

import pytest
import torch

from shoal.errors import CheckpointError
from shoal.optim import SGD, Adam

BOTH = pytest.mark.parametrize("fast", [False, True], ids=["readable", "fast"])


def stepped(optimizer: torch.optim.Optimizer, times: int) -> torch.optim.Optimizer:
    for step in range(times):
        for param in optimizer.param_groups[0]["params"]:
            param.grad = torch.full_like(param, 1.0 + step)
        optimizer.step()
    return optimizer


def picture_weights() -> torch.Tensor:
    values = torch.arange(24.0, dtype=torch.float64).view(1, 2, 3, 4)
    return values.contiguous(memory_format=torch.channels_last).requires_grad_()


@BOTH
def test_state_put_in_place_in_another_memory_order_is_used_rightly(fast: bool) -> None:
    """As after a checkpoint, whose tensors are contiguous while the parameter is channels-last."""
    straight, placed = (stepped(Adam([picture_weights()], lr=0.1, fast=fast), 2) for _ in range(2))
    (param,) = placed.param_groups[0]["params"]
    placed.state[param] = {name: value.clone().contiguous() for name, value in placed.state[param].items()}
    (expected,) = stepped(straight, 2).param_groups[0]["params"]
    stepped(placed, 2)
    assert torch.equal(param, expected)
    assert torch.equal(placed.state[param]["exp_avg"], straight.state[expected]["exp_avg"])


@BOTH
def test_an_empty_momentum_buffer_begins_at_zero(fast: bool) -> None:
    optimizer = SGD([picture_weights()], lr=0.1, momentum=0.9, fast=fast)
    (param,) = optimizer.param_groups[0]["params"]
    optimizer.state[param]["momentum_buffer"] = None
    (expected,) = stepped(SGD([picture_weights()], lr=0.1, momentum=0.9), 2).param_groups[0]["params"]
    stepped(optimizer, 2)
    torch.testing.assert_close(param, expected, rtol=1e-15, atol=0)


def test_the_readable_and_the_fast_step_exchange_their_state() -> None:
    readable = stepped(Adam([picture_weights()], lr=0.1), 3)
    fast = Adam(copy.deepcopy(readable.param_groups[0]["params"]), lr=0.1, fast=True)
    fast.load_state_dict(readable.state_dict())
    assert fast.fast
    torch.testing.assert_close(
        stepped(fast, 3).param_groups[0]["params"][0],
        stepped(readable, 3).param_groups[0]["params"][0],
        rtol=1e-13,
        atol=0,
    )


@BOTH
def test_parameters_that_join_leave_and_return_count_their_own_steps(fast: bool) -> None:
    """In a group that is added between steps, by freezing, and by updating some alone."""
    params = [torch.full((3,), 1.0, requires_grad=True) for _ in range(3)]
    ours, theirs = Adam(params[:2], fast=fast), torch.optim.Adam(twins := copy.deepcopy(params[:2]))
    twins.append(copy.deepcopy(params[2]))
    for step in range(6):
        if step == 2:
            for optimizer, joins in ((ours, params[2]), (theirs, twins[2])):
                optimizer.add_param_group({"params": [joins], "lr": 0.1})
        updated = [0, 1] if step < 2 else [[0, 1, 2], [1, 2], [2], [0, 1, 2]][step - 2]
        for index in range(3):
            has_gradient = index in updated
            twins[index].grad = torch.full((3,), 1.0 + step) if has_gradient else None
            # At the last step but one, the others have a gradient, and `only` leaves them out.
            params[index].grad = torch.full((3,), 1.0 + step) if has_gradient or step == 4 else None
        ours.step(only=[params[2]]) if step == 4 else ours.step()
        theirs.step()
    counts = [int(ours.state[param]["step"]) for param in params]
    assert counts == [int(theirs.state[twin]["step"]) for twin in twins] == [4, 5, 4]
    for param, twin in zip(params, twins, strict=True):
        torch.testing.assert_close(param, twin, rtol=1e-6, atol=0)


def test_a_state_of_another_optimizer_is_refused() -> None:
    saved = stepped(SGD([picture_weights()], lr=0.1), 1).state_dict()
    with pytest.raises(CheckpointError, match="has no betas, which Adam requires"):
        Adam([picture_weights()]).load_state_dict(saved)


def test_a_state_of_another_shape_is_refused() -> None:
    saved = stepped(Adam([torch.zeros(3, requires_grad=True)]), 1).state_dict()
    with pytest.raises(CheckpointError, match=r"exp_avg of parameter 0 .* has shape \(3,\)"):
        Adam([torch.zeros(4)]).load_state_dict(saved)
