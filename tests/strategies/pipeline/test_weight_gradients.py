"""Weight gradients apart from input gradients: the same numbers as one backward pass."""

import pytest
import torch
from torch import nn

from shoal.strategies.pipeline.weight_gradients import WeightGradients

PARTS = 3


def linear():
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3, bias=False)), (5,)


def rows_of_text():
    return nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 3)), (6, 5)


def pictures():
    grouped = nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=2)
    return nn.Sequential(nn.Conv2d(2, 4, 3, bias=False), nn.ReLU(), grouped, nn.BatchNorm2d(4)), (2, 9, 9)


def a_weight_used_twice():
    shared = nn.Linear(5, 5)
    tied = nn.Linear(5, 5)
    tied.weight = shared.weight
    return nn.Sequential(shared, nn.Tanh(), shared, tied), (5,)


def layers_that_stay_as_they_are():
    frozen = nn.Linear(5, 5)
    frozen.weight.requires_grad_(False)
    circular = nn.Conv1d(5, 5, 3, padding=1, padding_mode="circular")
    return nn.Sequential(
        frozen,
        nn.Unflatten(1, (5, 1)),
        circular,
        nn.Flatten(),
        nn.utils.parametrizations.weight_norm(nn.Linear(5, 2)),
    ), (5,)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(
    "made", [linear, rows_of_text, pictures, a_weight_used_twice, layers_that_stay_as_they_are]
)
def test_the_sum_of_both_halves_is_the_whole(made, at_once):
    torch.manual_seed(0)
    model, shape = made()
    model.double()
    inputs = [torch.randn(4, *shape, dtype=torch.float64, requires_grad=True) for _ in range(PARTS)]
    for part in inputs:
        model(part).square().sum().backward()
    expected = {name: param.grad for name, param in model.named_parameters()}
    input_gradients = [part.grad for part in inputs]
    for tensor in (*model.parameters(), *inputs):
        tensor.grad = None

    halves = WeightGradients(model)
    for number, part in enumerate(inputs):
        halves.current = number
        model(part).square().sum().backward()
    assert all(
        torch.allclose(part.grad, own, atol=1e-12) for part, own in zip(inputs, input_gradients, strict=True)
    )
    if at_once:
        halves.add_all()
    else:
        for number in reversed(range(PARTS)):
            halves.add(number)
    for name, param in model.named_parameters():
        if expected[name] is None:
            assert param.grad is None
        else:
            torch.testing.assert_close(param.grad, expected[name], rtol=1e-12, atol=1e-12)


def test_until_asked_no_weight_has_a_gradient():
    model, _ = linear()
    halves = WeightGradients(model)
    model(torch.ones(2, 5)).sum().backward()
    assert [param.grad for param in model.parameters()] == [None, None, None]
    halves.add(0)
    assert all(param.grad is not None for param in model.parameters())


def test_a_gradient_that_the_program_keeps_is_not_overwritten():
    model = nn.Linear(3, 2)
    halves = WeightGradients(model)
    kept = []
    for number in (1.0, 2.0):
        model.weight.grad = None
        model(torch.full((1, 3), number)).sum().backward()
        halves.add(0)
        kept.append(model.weight.grad)
    assert [grad[0, 0].item() for grad in kept] == [1.0, 2.0]


def test_under_autocast_weights_keep_their_precision():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    inputs = torch.randn(16, 8)

    def gradients():
        for param in model.parameters():
            param.grad = None
        with torch.autocast("cpu", torch.bfloat16):
            outputs = model(inputs)
        outputs.float().square().sum().backward()
        return outputs

    outputs = gradients()
    expected = [param.grad for param in model.parameters()]
    halves = WeightGradients(model)
    assert torch.equal(gradients(), outputs)
    halves.add(0)
    for param, wanted in zip(model.parameters(), expected, strict=True):
        assert param.grad.dtype == torch.float32
        torch.testing.assert_close(param.grad, wanted, rtol=0.02, atol=0.02)
