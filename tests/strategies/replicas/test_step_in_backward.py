"""The step inside backward: one machine's bits, gradients that are gone at once, and what stops a run."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from shoal import optim
from shoal.comm.alone import alone
from shoal.comm.threads.group import run_threads
from shoal.config.sections.model import CrossEntropyConfig
from shoal.config.sections.optimizer import AdamConfig
from shoal.data.dataset import Batch
from shoal.errors import ConfigError, DivergedError
from shoal.events.spans import HostClock, SpanRecorder
from shoal.models import build_loss
from shoal.strategies.ddp.ddp import Ddp
from shoal.strategies.ddp.settings import DdpConfig
from shoal.strategies.exchange.exchange import AllReduce
from shoal.strategies.gradient_engine import build_engine
from shoal.strategies.guard import Guard
from shoal.strategies.layout.whole import Whole
from shoal.strategies.replicas.sync import Sync, SyncParts
from shoal.strategies.strategy import Share
from shoal.strategies.update import Update


class Tied(nn.Module):
    """A network that uses one matrix in two layers, and has one that it does not use."""

    def __init__(self, unused=True):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.middle.weight = self.first.weight
        if unused:
            self.unused = nn.Linear(8, 8)
        # From a generator of its own: workers are threads, which share torch's.
        draw = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for param in self.parameters():
                param.copy_(0.4 * torch.randn(param.shape, generator=draw))

    def forward(self, inputs):
        return self.last(torch.tanh(self.middle(torch.tanh(self.first(inputs)))))


class Reentrant(Tied):
    """Computes one layer twice, each time in a backward pass of its own."""

    def forward(self, inputs):
        hidden = self.first(inputs)
        for _ in range(2):
            hidden = checkpoint(self.middle, hidden, use_reentrant=True)
        return self.last(hidden)


def strategy(group, in_backward, make=Sync, model=None, watch=None):
    loss, span = CrossEntropyConfig(), SpanRecorder(HostClock())
    model = model or Tied()
    layout = Whole(model, build_loss(loss), build_engine("torch", model, loss, span), span)
    if watch is not None:
        for param in layout.params.values():
            layout.on_final(param, lambda _: watch(layout.params.values()))
    update = Update(layout, lambda params: optim.build(AdamConfig(lr=0.05, fast=False), params))
    exchange = AllReduce()
    guard = Guard(group, exchange, "stop")
    return make(SyncParts(layout, update, group, exchange, guard, step_in_backward=in_backward))


def ddp(parts):
    return Ddp(parts, DdpConfig(bucket_mib=1e-4))


def batch(count=12, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return Batch(torch.randn(count, 8, generator=draw), torch.randint(3, (count,), generator=draw), count)


def weights(made):
    return {piece.name: piece.values.clone() for piece in made.pieces()}


@pytest.mark.parametrize("parts", [1, 3])
def test_equals_a_step_after_backward(parts):
    """Also where gradients are added up over several parts: the last one updates."""
    inside, after = strategy(alone(), True), strategy(alone(), False)
    for step in range(4):
        whole = batch(seed=step)
        cuts = [
            Batch(inputs, labels, len(inputs))
            for inputs, labels in zip(whole.inputs.chunk(parts), whole.labels.chunk(parts), strict=True)
        ]
        losses = [each.step(Share(cuts, 12, 12), 0.05).loss for each in (inside, after)]
        assert losses[0] == losses[1]
        mine, expected = weights(inside), weights(after)
        assert mine.keys() == expected.keys()
        assert all(torch.equal(mine[name], value) for name, value in expected.items())
    assert not any(param.grad is not None for param in inside._layout.params.values())


def test_one_gradient_at_a_time():
    most = []
    made = strategy(
        alone(), True, watch=lambda params: most.append(sum(param.grad is not None for param in params))
    )
    made.step(Share([batch()], 12, 12), 0.05)
    assert max(most) == 1


def test_ddp_has_the_bits_of_ddp():
    """Five samples, none, and seven."""
    whole = batch()

    def work(group, in_backward):
        made = strategy(group, in_backward, ddp, model=Tied(unused=False))
        mine = (slice(0, 5), slice(0, 0), slice(5, 12))[group.rank]
        count = len(whole.labels[mine])
        parts = [Batch(whole.inputs[mine], whole.labels[mine], count)] if count else []
        losses = [made.step(Share(parts, 12, count), 0.05).loss.item() for _ in range(3)]
        return losses, weights(made)

    inside, after = (
        run_threads(3, lambda group, inside=inside: work(group, inside)) for inside in (True, False)
    )
    for (losses, mine), (expected_losses, expected) in zip(inside, after, strict=True):
        assert losses == expected_losses
        assert all(torch.equal(mine[name], value) for name, value in expected.items())


def test_bad_worker_is_named_before_its_gradient_reaches_a_weight():
    model = Tied(unused=False)
    after = []

    def work(group):
        made = strategy(group, True, ddp, model=copy.deepcopy(model))
        good = batch()
        bad = Batch(good.inputs * (torch.nan if group.rank == 1 else 1.0), good.labels, 12)
        try:
            made.step(Share([bad], 24, 12), 0.05)
        finally:
            after.append(weights(made))

    with pytest.raises(DivergedError, match="rank 1's gradient is nan"):
        run_threads(2, work)
    assert all(value.isfinite().all() for state in after for value in state.values())


def test_sum_that_is_not_finite_although_all_gradients_are():
    samples, model = batch(), Tied(unused=False)
    build_loss(CrossEntropyConfig())(model(samples.inputs), samples.labels).backward()
    norm = torch.cat([param.grad.view(-1) for param in model.last.parameters()]).norm().item()
    # The loss is divided by this: the square of the norm is finite, and that of twice the norm is not.
    num_samples = norm / 1.3e19

    def work(group):
        strategy(group, True, ddp, Tied(unused=False)).step(Share([samples], num_samples, 12), 0.05)

    with pytest.raises(DivergedError, match="the sum of the workers' gradients of last.bias is not finite"):
        run_threads(2, work)


@pytest.mark.parametrize("make", [Sync, ddp])
def test_a_parameter_that_would_be_updated_twice_is_named(make):
    def work(group):
        model = Reentrant(unused=False)
        strategy(group, True, make, model).step(Share([batch()], 12, 12), 0.05)

    with pytest.raises(ConfigError, match=r"'middle\.bias' got a second gradient .*\n.*use_reentrant=False"):
        run_threads(1, work)
