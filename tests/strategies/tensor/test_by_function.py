"""Division by function: towers compute at the same time, and only where the plan puts them."""

import threading

import pytest
import torch
from torch import nn

from shoal.comm.threads.group import run_threads
from shoal.comm.traced import traced
from shoal.strategies.tensor.divide import divide

PLAN = {"user": "worker 0", "item": "worker 1"}


class Meeting(torch.autograd.Function):
    """Passes only if another thread is in its own Meeting at the same time."""

    barrier = threading.Barrier(2)

    @staticmethod
    def forward(ctx, x):
        Meeting.barrier.wait(timeout=60)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        Meeting.barrier.wait(timeout=60)
        return gradient


class Meets(nn.Module):
    def forward(self, x):
        return Meeting.apply(x) if self.training and x.device.type == "cpu" else x


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Sequential(nn.Linear(4, 6), Meets(), nn.ReLU())
        self.item = nn.Sequential(nn.Linear(4, 6), Meets(), nn.Tanh())
        self.join = nn.Linear(12, 3)

    def forward(self, x):
        return self.join(torch.cat([self.user(x), self.item(x)], dim=1))


def test_both_towers_compute_at_the_same_time_forward_and_backward():
    def work(group):
        model = Towers()
        divide(model, group, PLAN)
        model(torch.ones(2, 4)).sum().backward()
        return [name for name, param in model.named_parameters() if param.grad is not None]

    first, second = run_threads(2, work)
    assert first == ["user.0.weight", "user.0.bias", "join.weight", "join.bias"]
    assert second == ["item.0.weight", "item.0.bias", "join.weight", "join.bias"]


def test_a_forward_pass_sends_each_output_and_a_backward_pass_nothing():
    def work(group):
        group = traced(group)
        model = Towers()
        divide(model, group, PLAN)
        model.eval()(torch.ones(5, 4)).sum().backward()
        return group.totals["broadcast"].calls, group.totals["broadcast"].num_bytes, len(group.totals)

    assert run_threads(2, work) == [(2, 5 * 6 * 4, 1)] * 2


def test_an_output_may_be_changed_in_place():
    class InPlace(Towers):
        def forward(self, x):
            user, item = self.user(x), self.item(x)
            return self.join(torch.cat([user.mul_(2.0), item.add_(1.0)], dim=1))

    torch.manual_seed(0)
    whole = InPlace().eval()
    x = torch.randn(3, 4)
    expected = whole(x)

    def work(group):
        model = InPlace().eval()
        model.load_state_dict(whole.state_dict())
        divide(model, group, PLAN)
        return model(x)

    for found in run_threads(2, work):
        assert torch.equal(found, expected)


def test_a_module_that_returns_no_tensor_is_refused():
    class Pair(nn.Linear):
        def forward(self, x):
            return super().forward(x), x

    def work(group):
        model = nn.Sequential(Pair(4, 4), nn.Linear(4, 4))
        divide(model, group, {"0": "worker 0"})
        with pytest.raises(ValueError, match="gives 0 to one worker, but it returns a tuple"):
            model(torch.ones(1, 4))

    run_threads(2, work)
