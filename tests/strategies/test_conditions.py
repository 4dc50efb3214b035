"""Slow and bad workers: how long they sleep and when, and what becomes of their gradients. Time is handed in."""

import math

import pytest
import torch
from torch import nn

from shoal.config.conditions import Bottleneck, Fault
from shoal.config.sections.model import CrossEntropyConfig
from shoal.data.dataset import Batch
from shoal.events.spans import HostClock, SpanRecorder
from shoal.strategies.conditions import delays, outdated, slowed, under_conditions
from shoal.strategies.exchange.exchange import TrainingClock
from shoal.strategies.gradient_engine import build_engine


class Time:
    """A worker that takes `cost` seconds per sample; what it does, and when it sleeps, is written down."""

    def __init__(self, cost=0.01):
        self.now, self.cost, self.log = 0.0, cost, []

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.log.append(("sleep", round(seconds, 9)))

    def gradients(self, batch, scale):
        self.now += self.cost * batch.num_samples
        self.log.append(("compute", batch.num_samples))
        return torch.tensor(1.0)

    def slowed(self, now, **bottleneck):
        span = SpanRecorder(HostClock())
        return slowed(
            self.gradients, Bottleneck(1, **bottleneck), now, 0, span, clock=self.clock, sleep=self.sleep
        )


def batch(num_samples):
    return Batch(torch.empty(num_samples, 1), torch.empty(num_samples), num_samples)


def test_it_takes_so_many_times_as_long():
    time = Time(cost=0.01)
    slow = time.slowed(TrainingClock(), slowdown=3.0)
    for size in (4, 4, 8, 2):
        slow(batch(size), 1.0)
    assert time.now == pytest.approx(3 * 0.01 * (4 + 4 + 8 + 2))


def test_but_for_the_first_two_times_it_sleeps_before_it_computes():
    time = Time(cost=0.01)
    slow = time.slowed(TrainingClock(), slowdown=2.0)
    for size in (4, 4, 8):
        slow(batch(size), 1.0)
    first = [("compute", 4), ("sleep", 0.04)]
    assert time.log == [*first, *first, ("sleep", 0.08), ("compute", 8)]


def test_the_first_computation_predicts_nothing():
    """It warms up: a slow worker would sleep as long in later steps."""
    time = Time()
    slow = time.slowed(TrainingClock(), slowdown=2.0)
    for cost in (9.0, 0.01, 0.01, 0.01):
        time.cost = cost
        slow(batch(1), 1.0)
    assert [seconds for what, seconds in time.log if what == "sleep"] == [9.0, 0.01, 0.01, 0.01]


def test_one_hiccup_is_not_multiplied():
    time = Time(cost=0.01)
    slow = time.slowed(TrainingClock(), slowdown=2.0)
    for cost in (0.01, 0.01, 9.0, 0.01):
        time.cost = cost
        slow(batch(1), 1.0)
    assert max(seconds for what, seconds in time.log if what == "sleep") == 0.01


def test_the_delay_comes_once_per_step_whatever_the_parts():
    time, now = Time(), TrainingClock()
    slow = time.slowed(now, delay_s=(0.5, 0.5))
    for now.step in (0, 0, 0, 1, 1):
        slow(batch(2), 1.0)
    assert [entry for entry in time.log if entry[0] == "sleep"] == [("sleep", 0.5)] * 2
    assert time.log[0] == ("sleep", 0.5), "the others wait for what comes after it"


def test_random_delays_are_drawn_anew_and_repeat():
    drawn = [delays(Bottleneck(1, delay_s=(0.1, 0.3)), seed=5)(step) for step in range(200)]
    again = [delays(Bottleneck(1, delay_s=(0.1, 0.3)), seed=5)(step) for step in reversed(range(200))]
    assert drawn == again[::-1]
    assert len(set(drawn)) == 200
    assert 0.1 <= min(drawn) < 0.12 < 0.28 < max(drawn) <= 0.3
    assert drawn != [delays(Bottleneck(0, delay_s=(0.1, 0.3)), seed=5)(step) for step in range(200)]


def no_hooks(param, callback):
    raise AssertionError


def test_sleeping_is_seen_as_computation():
    time, span = Time(), SpanRecorder(HostClock())
    slow = slowed(
        time.gradients, Bottleneck(1, slowdown=2.0), TrainingClock(), 0, span, time.clock, time.sleep
    )
    slow(batch(2), 1.0)
    assert [(name, kind) for name, kind, *_ in span.marks] == [("slowed", "compute")]


@pytest.mark.parametrize("engine", ["torch", "tape", "static"])
@pytest.mark.parametrize(
    ("kind", "factor"), [("flip", -1.0), ("huge", 1e6), ("nan", math.nan), ("inf", math.inf)]
)
def test_bad_gradients_are_bad_under_every_engine_and_the_loss_is_not(engine, kind, factor):
    torch.manual_seed(0)
    model, now = nn.Sequential(nn.Linear(3, 4)), TrainingClock()
    made = build_engine(engine, model, CrossEntropyConfig(), SpanRecorder(HostClock()))
    params, faults = made.params.values(), [Fault(0, kind, step=3)]
    bad = under_conditions(
        made.gradients, params, made.on_final, [], faults, 0, now, 0, SpanRecorder(HostClock())
    )
    samples = Batch(torch.randn(5, 3), torch.tensor([0, 1, 2, 3, 0]), 5)
    seen = {}
    for now.step in (2, 3, 4):
        for param in made.params.values():
            param.grad = None
        loss = bad(samples, 0.2)
        seen[now.step] = {name: param.grad.clone() for name, param in made.params.items()}, loss
    good, loss = seen[2]
    assert all(grad.isfinite().all() for grad in good.values()), "good before the fault begins"
    for step in (3, 4):
        assert torch.equal(seen[step][1], loss)
        for name, grad in seen[step][0].items():
            if math.isfinite(factor):
                torch.testing.assert_close(grad, good[name] * factor)
            else:
                assert torch.equal(grad.isnan(), torch.full_like(grad, math.isnan(factor), dtype=torch.bool))
                assert not grad.isfinite().any()


@pytest.mark.parametrize("engine", ["torch", "tape", "static"])
def test_a_stale_worker_computes_with_old_weights_and_leaves_the_new_ones_alone(engine):
    torch.manual_seed(0)
    model, now = nn.Sequential(nn.Linear(3, 4)), TrainingClock()
    made = build_engine(engine, model, CrossEntropyConfig(), SpanRecorder(HostClock()))
    stale = outdated(made.gradients, [*made.params.values()], Fault(0, "stale", step=1), now)
    samples = Batch(torch.randn(5, 3), torch.tensor([0, 1, 2, 3, 0]), 5)
    weights, losses, grads = [], [], []
    for now.step in range(4):
        for param in made.params.values():
            param.grad = None
        weights.append(model[0].weight.detach().clone())
        losses.append(stale(samples, 0.2).item())
        grads.append(torch.cat([param.grad.flatten() for param in made.params.values()]))
        assert torch.equal(model[0].weight, weights[-1])
        with torch.no_grad():
            for param in made.params.values():
                param.add_(param.grad, alpha=-0.5)
    assert losses[1] < losses[0]
    assert losses[1] == losses[2] == losses[3]
    assert not torch.equal(grads[1], grads[0])
    assert torch.equal(grads[1], grads[2])
    assert torch.equal(grads[1], grads[3])
    assert not torch.equal(weights[3], weights[1])


def test_only_the_worker_that_is_named_is_touched():
    time, span = Time(), SpanRecorder(HostClock())
    conditions = [Bottleneck(1, slowdown=2.0), Bottleneck(2, share=0.5)], [Fault(1, "flip")]
    for rank, touched in ((0, False), (1, True), (2, False)):
        gradients = under_conditions(
            time.gradients, [], no_hooks, *conditions, rank, TrainingClock(), 0, span
        )
        assert (gradients == time.gradients) == (not touched)
