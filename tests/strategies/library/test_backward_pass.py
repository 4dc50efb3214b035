"""Which backward passes exchange, and when: seen through the wrapper, as a program sees it."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from shoal.comm.threads.group import run_threads
from shoal.comm.traced import traced
from shoal.errors import ConfigError
from shoal.strategies.ddp.distributed_data_parallel import DistributedDataParallel

OVERLAPS = pytest.mark.parametrize("overlaps", [False, True])


def gradients_of(network, loss, workers, overlaps=False, **options):
    """Every worker's gradients after `loss(model, inputs)` is done with them, and how often buckets were exchanged."""

    def work(group):
        group.overlaps = overlaps
        group = traced(group)
        draw = torch.Generator().manual_seed(0)
        module = network().double()
        with torch.no_grad():
            for param in module.parameters():
                param.copy_(torch.randn(param.shape, generator=draw, dtype=torch.float64))
        options.setdefault("bucket_cap_mb", 1e-4)
        model = DistributedDataParallel(module, group, **options)
        assert model._sync is None or model._sync._reducer.is_early == (overlaps and not model.static_graph)
        before = group.totals["all_reduce"].calls if "all_reduce" in group.totals else 0
        inputs = torch.linspace(-1, 1, 12, dtype=torch.float64).view(4, 3)
        loss(model, inputs[group.rank :: group.size])
        calls = group.totals["all_reduce"].calls - before if "all_reduce" in group.totals else 0
        return [None if param.grad is None else param.grad.clone() for param in module.parameters()], calls

    return run_threads(workers, work)


def assert_is_one_machine(network, loss, **options):
    """Two workers, each with half of the samples, agree with one that has all; losses are means."""
    ((expected, _),) = gradients_of(network, loss, 1)
    for gradients, _ in gradients_of(network, loss, 2, **options):
        for ours, theirs in zip(gradients, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


class Checkpointed(nn.Module):
    """Nothing but checkpointed blocks from the output on: the first gradients come from a pass inside the pass."""

    def __init__(self, times=1):
        super().__init__()
        self.first, self.block, self.last = nn.Linear(3, 5), nn.Linear(5, 5), nn.Linear(5, 2)
        self.times = times

    def forward(self, inputs):
        hidden = self.first(inputs)
        for _ in range(self.times):
            hidden = torch.tanh(checkpoint(self.block, hidden, use_reentrant=True))
        return checkpoint(self.last, hidden, use_reentrant=True)


def squares(model, inputs):
    model(inputs).square().mean().backward()


@OVERLAPS
def test_reentrant_checkpoints_are_parts_of_one_pass(overlaps):
    assert_is_one_machine(Checkpointed, squares, overlaps=overlaps)


@OVERLAPS
def test_a_block_checkpointed_twice_needs_a_static_graph_at_most(overlaps):
    assert_is_one_machine(lambda: Checkpointed(times=2), squares, overlaps=overlaps, static_graph=True)


def test_a_gradient_that_comes_when_its_bucket_has_gone_is_refused():
    with pytest.raises(ConfigError, match=r"'block\.\w+' got a second gradient .*\n.*static_graph=True"):
        gradients_of(lambda: Checkpointed(times=2), squares, 2, overlaps=True)


def network():
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


@OVERLAPS
def test_a_second_pass_through_the_same_outputs_is_exchanged_too(overlaps):
    def loss(model, inputs):
        outputs = model(inputs)
        outputs.square().mean().backward(retain_graph=True)
        outputs.sin().mean().backward()

    assert_is_one_machine(network, loss, overlaps=overlaps)


def test_two_forwards_may_come_before_two_backwards():
    def loss(model, inputs):
        first, second = model(inputs), model(2 * inputs)
        first.square().mean().backward()
        second.square().mean().backward()

    assert_is_one_machine(network, loss)


def test_a_penalty_on_gradients_alone_reaches_no_output_and_is_exchanged():
    def loss(model, inputs):
        inputs = inputs.clone().requires_grad_()
        (slopes,) = torch.autograd.grad(model(inputs).sum(), inputs, create_graph=True)
        slopes.square().mean().backward()

    assert_is_one_machine(
        lambda: nn.Sequential(nn.Linear(3, 5, bias=False), nn.Tanh(), nn.Linear(5, 1, bias=False)), loss
    )


def test_taking_derivatives_without_backward_exchanges_nothing():
    def loss(model, inputs):
        torch.autograd.grad(model(inputs).sum(), list(model.parameters()))

    for _, calls in gradients_of(network, loss, 2):
        assert calls == 0


def test_what_one_worker_does_with_the_module_itself_is_its_own():
    def loss(model, inputs):
        squares(model, inputs)
        model.zero_grad()
        if model._group.rank == 0:  # no other rank calls anything: an exchange would wait in vain
            squares(model.module, inputs)

    (own, calls), (none, as_many) = gradients_of(network, loss, 2)
    assert calls == as_many
    assert all(gradient is not None for gradient in own)
    assert all(gradient is None for gradient in none)


@dataclass
class Output:
    value: torch.Tensor
    name: str = "no tensor"


class Structured(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(3, 2)

    def forward(self, inputs):
        return {"deep": [Output(checkpoint(self.last, inputs, use_reentrant=True)), inputs]}


def test_outputs_are_found_in_whatever_holds_them():
    def loss(model, inputs):
        outputs = model(inputs.clone().requires_grad_())["deep"]
        outputs[0].value.square().mean().backward()

    assert_is_one_machine(Structured, loss)


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor):
        return tensor.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise MemoryError("a step too large")


class Fragile(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, inputs, fails=False):
        hidden = self.first(inputs)
        return self.last(Failing.apply(hidden) if fails else hidden)


@OVERLAPS
@pytest.mark.parametrize("again", ["forward", "backward"])
def test_after_a_pass_that_failed_the_next_one_is_exchanged(overlaps, again):
    def loss(model, inputs):
        outputs = model(inputs)
        with pytest.raises(MemoryError):
            model(inputs, fails=True).mean().backward()
        model.zero_grad()
        (model(inputs) if again == "forward" else outputs).square().mean().backward()

    assert_is_one_machine(Fragile, loss, overlaps=overlaps)
