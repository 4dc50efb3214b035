"""The schedule `async`: one machine's steps with one micro-batch; with more, PipeDream's delayed gradients, exactly."""

import pytest
import torch
from pipeline_cases import CUTS, deep_network, pipelined
from strategy_cases import (
    BATCH,
    OPTIMIZERS,
    assert_close_states,
    on_threads,
    one_machine,
    rate,
    replica,
    share_of,
    single,
    state_of,
)

from shoal.config.sections.model import CrossEntropyConfig
from shoal.errors import ConfigError
from shoal.models import build_loss
from shoal.strategies.pieces.whole_tensors import WholeTensors
from shoal.strategies.pipeline.cut import cut_by_name
from shoal.strategies.pipeline.pipeline import divided
from shoal.strategies.pipeline.settings import PipelineConfig
from shoal.training import checkpoint
from shoal.training.progress import Progress

STEPS = 3


def asynchronous(stages, microbatches, optimizer="sgd", **options):
    return pipelined(stages, PipelineConfig("async", microbatches, **options), OPTIMIZERS[optimizer])


def steps(strategy, group, first=0, last=STEPS):
    """The whole state and the loss after every step, as rank 0 puts it together."""
    states = []
    for step in range(first, last):
        loss = strategy.step(share_of(strategy, step, (BATCH,), parts=2), rate(step)).loss
        wholes = WholeTensors(strategy.pieces(), group, prefix="")
        states.append(({name: tensor.clone() for name, tensor in wholes}, loss.item()))
    return states


def assert_same(members, expected):
    for step in range(STEPS):
        assert_close_states(members[0][step][0], expected[step][0], f"after step {step}")
        for states in members:
            assert states[step][1] == pytest.approx(expected[step][1], rel=1e-12)


def pipedream(stages, microbatches, optimizer):
    """PipeDream on one machine: micro-batch k of a step has the gradient at weights that lack the latest updates.

    Of stage s, these are the updates of the p − s − 1 micro-batches before it in the step.
    """
    copy = replica(OPTIMIZERS[optimizer], network=deep_network)
    strategy, loss_of = single(copy), build_loss(CrossEntropyConfig())
    layers = cut_by_name(copy.model, CUTS[stages])
    delays = {
        id(param): stages - stage - 1
        for stage, members in enumerate(layers)
        for layer in members
        for param in layer.module.parameters()
    }
    history = []
    for step in range(STEPS):
        versions, total = [], 0.0
        for k, part in enumerate(divided(share_of(strategy, step, (BATCH,)), microbatches)):
            versions.append([param.detach().clone() for param in copy.params.values()])
            newest = versions[-1]
            with torch.no_grad():
                for index, param in enumerate(copy.params.values()):
                    param.copy_(versions[max(0, k - delays[id(param)])][index])
                    param.grad = None
            loss = loss_of(copy.model(part.inputs), part.labels)
            (loss / part.num_samples).backward()
            with torch.no_grad():
                for param, value in zip(copy.params.values(), newest, strict=True):
                    param.copy_(value)
            copy.update(rate(step))
            total += loss.item()
        history.append((state_of(strategy), total / BATCH))
    return history


@pytest.mark.parametrize(("stages", "optimizer"), [*((2, each) for each in OPTIMIZERS), (3, "adam")])
def test_one_micro_batch_equals_one_machine(stages, optimizer):
    members = on_threads(stages, lambda group: steps(asynchronous(stages, 1, optimizer)(group), group))
    assert_same(members, one_machine(optimizer, network=deep_network))


@pytest.mark.parametrize(
    ("stages", "microbatches", "optimizer", "recompute"),
    [
        (2, 4, "gd", False),
        (3, 4, "adam", True),
        (3, 5, "gd", True),
        (3, 5, "adam", False),
        (4, 12, "gd", False),
        (4, 12, "adam", True),
    ],
)
def test_many_micro_batches_equal_delayed_gradients(stages, microbatches, optimizer, recompute):
    def work(group):
        return steps(asynchronous(stages, microbatches, optimizer, recompute=recompute)(group), group)

    assert_same(on_threads(stages, work), pipedream(stages, microbatches, optimizer))


def test_with_more_than_one_micro_batch_it_is_not_one_machine():
    members = on_threads(2, lambda group: steps(asynchronous(2, 4)(group), group))
    expected = one_machine("sgd", network=deep_network)
    assert (members[0][0][0]["model.0.weight"] - expected[0][0]["model.0.weight"]).abs().max() > 1e-3


def test_a_run_continues_from_a_checkpoint(tmp_path):
    make = asynchronous(2, 4, "adam")
    expected = on_threads(2, lambda group: steps(make(group), group))

    def save(group):
        strategy = make(group)
        steps(strategy, group, 0, 1)
        checkpoint.save(tmp_path, strategy.pieces(), Progress(step=1), keep=1, group=group)

    def go_on(group):
        strategy = make(group)
        strategy.load(checkpoint.latest(tmp_path).pieces())
        return steps(strategy, group, 1)

    on_threads(2, save)
    continued = on_threads(2, go_on)
    assert_close_states(continued[0][-1][0], expected[0][-1][0], "at the end")


@pytest.mark.parametrize("bad", [0, 7])
def test_a_number_that_is_not_finite_stops_all_stages_and_reaches_no_weight(bad):
    def work(group):
        strategy = asynchronous(2, 4)(group)
        share = share_of(strategy, 0, (BATCH,))
        share.parts[0].inputs[bad] = torch.nan
        with pytest.raises(ArithmeticError, match="gradient is nan"):
            strategy.step(share, 0.1)
        return all(tensor.isfinite().all() for tensor in strategy._layout.params.values())

    assert on_threads(2, work) == [True, True]


def test_a_stop_signal_of_one_stage_reaches_all():
    def work(group):
        strategy = asynchronous(2, 4)(group)
        share = share_of(strategy, 0, (BATCH,))
        object.__setattr__(share, "stop_signal", 15 if group.rank == 0 else 0)
        return strategy.step(share, 0.1).stop_signal

    assert on_threads(2, work) == [15, 15]


def test_replicas_are_refused():
    def work(group):
        strategy = asynchronous(2, 4)(group)
        with pytest.raises(ConfigError, match="schedule async updates the weights inside a step"):
            strategy.step(share_of(strategy, 0, (6, 6)), 0.1)

    on_threads(4, work)
