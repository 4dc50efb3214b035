"""`local` against a plain simulation, and what users notice: agreement, bad numbers, exchanges, bad settings."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from local_cases import STEPS, simulate, trained, weights_of
from strategy_cases import (
    OPTIMIZERS,
    copy_of,
    distance,
    local,
    made,
    on_threads,
    one_machine,
    rate,
    replica,
    share,
    share_of,
    train,
)
from torch import nn

from shoal.comm.algorithms import ring
from shoal.comm.traced import traced
from shoal.config.read import read
from shoal.errors import ConfigError, DivergedError
from shoal.strategies.exchange.exchange import By, Exchange, ParameterState
from shoal.strategies.exchange.rules import ROBUST, Robust
from shoal.strategies.local.local import LocalSync
from shoal.strategies.local.settings import LocalConfig
from shoal.strategies.pieces.piece import by_name

SGD = OPTIMIZERS["sgd"]
VARIANTS = {
    "local SGD": {"every": 3, "moments": "keep"},
    "DiLoCo": {"every": 3, "outer_lr": 0.7, "outer_momentum": 0.9, "moments": "keep"},
    "streaming": {"every": 4, "fragments": 3, "moments": "keep"},
    "overlapped": {"every": 3, "overlap": 2},
    "as late as possible": {"every": 3, "overlap": 3, "outer_momentum": 0.5},
    "streaming DiLoCo": {
        "every": 4,
        "fragments": 5,
        "overlap": 2,
        "outer_lr": 0.7,
        "outer_momentum": 0.9,
    },
}


@pytest.mark.parametrize("shares", [(6, 6), (9, 3), (7, 0, 5)], ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_a_simulation_on_one_machine(variant, shares):
    expected = simulate(SGD, shares, **VARIANTS[variant])

    def work(group):
        return trained(local(replica(SGD), group, **VARIANTS[variant]), shares)

    for rank, history in enumerate(on_threads(len(shares), work)):
        for step, found in enumerate(history):
            assert distance(found, expected[step][rank]) <= 1e-12, f"rank {rank}, step {step}"


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_workers_have_the_same_bits_after_an_averaging_and_only_then(optimizer):
    def work(group):
        return trained(local(replica(OPTIMIZERS[optimizer]), group, every=3), (7, 3, 2))

    first, second, third = on_threads(3, work)
    equal = [torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(first, second, third, strict=True)]
    assert equal == [step % 3 == 0 for step in range(1, STEPS + 1)]


def test_averaged_moments_are_the_same_on_all_workers():
    def work(group):
        strategy = local(replica(OPTIMIZERS["adam"]), group, every=2, fragments=2)
        trained(strategy, (9, 3), steps=4)
        return {
            name: tensor.clone() for name, tensor in by_name(strategy.pieces()).items() if "exp_avg" in name
        }

    first, second = on_threads(2, work)
    half = [name for name in first if name.startswith("optim.")]
    assert half
    # The second fragment was averaged one step earlier, and has been trained since.
    assert torch.equal(first["optim.0.weight.exp_avg"], second["optim.0.weight.exp_avg"])
    assert not torch.equal(first["optim.2.bias.exp_avg_sq"], second["optim.2.bias.exp_avg_sq"])


@pytest.mark.parametrize("engine", ["tape", "static"])
def test_our_own_engines_train_under_it_too(engine):
    def work(group):
        return train(local(replica(SGD, engine=engine), group, fragments=2), (7, 5), parts=2)

    for member in on_threads(2, work):
        for key, piece in one_machine("sgd")[-1][0].items():
            assert distance(member[-1][0][key], piece) <= 1e-10


@pytest.mark.parametrize("exchange", [By(ring), Robust(ROBUST["median"], bad=0)], ids=["ring", "median"])
def test_any_exchange_averages(exchange):
    def work(group):
        return trained(made(LocalSync, LocalConfig(every=2), replica(SGD), group, exchange), (6, 6))[-1]

    def plain(group):
        return trained(local(replica(SGD), group, every=2), (6, 6))[-1]

    # The median of two is their mean.
    for found, expected in zip(on_threads(2, work), on_threads(2, plain), strict=True):
        assert distance(found, expected) <= 1e-12


def calls(group, **options):
    spans = []
    strategy = local(replica(SGD), traced(group, spans.append), **options)
    spans.clear()
    trained(strategy, (6, 6), steps=8)
    return [(span.name, span.bytes) for span in spans if span.kind == "move"]


def test_most_steps_do_not_communicate():
    table = 2 * 4 * 8
    numel = sum(param.numel() for param in replica(SGD).params.values())
    weights, both = ("all_reduce", numel * 8 + table), ("all_reduce", numel * 16 + table)

    def of_two(**options):
        return on_threads(2, partial(calls, **options))[0]

    assert of_two(every=4, moments="keep") == [weights, weights]
    assert of_two(every=4) == [both, both], "momentum travels with the weights"
    streamed = of_two(every=4, fragments=4, moments="keep")
    assert len(streamed) == 8, "one fragment in every step"
    assert max(size for _, size in streamed) <= numel * 8 / 4 + 8 + table


def test_a_worker_shows_progress_in_steps_that_do_not_communicate():
    def work(group):
        beats, beat = [], group.beat
        group.beat = lambda busy_s=0.0: (beats.append(busy_s), beat(busy_s))
        strategy = local(replica(SGD), group, every=100)
        beats.clear()
        trained(strategy, (6, 6), steps=5)
        return len(beats)

    assert min(on_threads(2, work)) >= 5, "else a member that waits at the averaging would give it up"


# Agreement.


def test_a_stop_signal_is_heard_at_the_next_averaging_by_all():
    def work(group):
        strategy, heard = local(replica(SGD), group, every=3), []
        for step in range(6):
            signal = 15 if group.rank == 1 and step >= 1 else 0
            mine = replace(share(step, 6 * group.rank, 6), stop_signal=signal)
            heard.append(strategy.step(mine, rate(step)).stop_signal)
        return heard

    assert on_threads(2, work) == [[0, 0, 15, 15, 15, 15]] * 2


def test_a_stop_signal_is_heard_when_the_workers_save():
    def work(group):
        strategy = local(replica(SGD), group, every=100)
        strategy.step(replace(share(0, 6 * group.rank, 6), stop_signal=2 * group.rank), 0.1)
        strategy.consolidate()
        return strategy.step(share(1, 6 * group.rank, 6), 0.1).stop_signal

    assert on_threads(2, work) == [2, 2]


def steps_with_a_bad_one(group, policy, bad_step=1, **options):
    """The state after every step; rank 1's inputs of one step are not finite."""
    strategy = made(LocalSync, LocalConfig(**options), replica(SGD), group, on_nonfinite=policy)
    results = []
    for step in range(4):
        mine = share(step, 6 * group.rank, 6)
        if group.rank == 1 and step == bad_step:
            mine.parts[0].inputs[0, 0] = torch.nan
        try:
            results.append(strategy.step(mine, rate(step)).loss.item())
        except DivergedError as error:
            results.append(error.message)
        assert weights_of(strategy).isfinite().all()
    return results


def test_bad_numbers_never_reach_the_weights_and_are_named_at_the_averaging():
    for results in on_threads(2, partial(steps_with_a_bad_one, policy="stop", every=3)):
        assert all(isinstance(loss, float) for loss in results[:2]), "no worker stops alone"
        assert "the norm of rank 1's gradient is nan" in results[2]


def test_bad_numbers_in_the_last_interval_are_named_when_the_run_ends():
    def work(group):
        strategy = made(LocalSync, LocalConfig(every=100), replica(SGD), group)
        mine = share(0, 6 * group.rank, 6)
        if group.rank == 0:
            mine.parts[0].inputs.fill_(torch.inf)
        strategy.step(mine, 0.1)
        with pytest.raises(DivergedError, match="rank 0's gradient"):
            strategy.consolidate()

    on_threads(2, work)


@pytest.mark.parametrize("saves", [False, True])
def test_bad_numbers_are_named_when_a_late_average_is_applied_or_saved(saves):
    def work(group):
        strategy = made(LocalSync, LocalConfig(every=2, overlap=2), replica(SGD), group)
        for step in range(2):
            mine = share(step, 6 * group.rank, 6)
            if group.rank == 1:
                mine.parts[0].inputs[0, 0] = torch.nan
            strategy.step(mine, 0.1)
        if saves:
            strategy.consolidate()
        for step in range(2, 4):
            strategy.step(share(step, 6 * group.rank, 6), 0.1)

    with pytest.raises(DivergedError, match="rank 1's gradient is nan"):
        on_threads(2, work)


@pytest.mark.filterwarnings("ignore:the norm of rank 0")
def test_by_policy_a_bad_step_is_left_out_by_its_worker():
    with pytest.warns(UserWarning, match=r"rank 1's gradient is nan.*left out"):
        found = on_threads(2, partial(steps_with_a_bad_one, policy="skip", every=2, bad_step=0))
    assert all(isinstance(loss, float) for results in found for loss in results)


def test_clipping_is_each_workers_own():
    def work(group):
        strategy = local(replica(OPTIMIZERS["gd"], clip_norm=0.01), group, every=2)
        before = weights_of(strategy)
        strategy.step(share_of(strategy, 0, (6, 6)), 1.0)
        return (weights_of(strategy) - before).norm().item()

    assert on_threads(2, work) == pytest.approx([0.01, 0.01])


def test_bf16_keeps_weights_in_float32():
    def work(group):
        model = replica(SGD, dtype=torch.float32).model
        strategy = local(copy_of(model, SGD, precision="bf16"), group, every=2)
        for step in range(2):
            strategy.step(share_of(strategy, step, (6, 6), dtype=torch.float32), 0.01)
        assert all(param.dtype is torch.float32 for param in model.parameters())
        return weights_of(strategy)

    first, second = on_threads(2, work)
    assert torch.equal(first, second)


class Forked(nn.Module):
    """Uses its second layer only for samples that say so."""

    def __init__(self):
        super().__init__()
        self.always, self.sometimes = nn.Linear(6, 5), nn.Linear(6, 5)

    def forward(self, inputs):
        outputs = self.always(inputs)
        return outputs + self.sometimes(inputs) if inputs[0, 0] > 100 else outputs


def test_a_parameter_without_a_gradient_is_named_or_gets_zero():
    def work(unused, group):
        strategy = local(replica(SGD, network=Forked), group, unused=unused)
        mine = share(0, 6 * group.rank, 6)
        if group.rank == 1:
            mine.parts[0].inputs[:, 0] = 1000.0
        strategy.step(mine, 0.1)
        return weights_of(strategy)

    with pytest.raises(
        ConfigError, match=r"no gradient reached 'sometimes.weight', 'sometimes.bias' on rank 0"
    ):
        on_threads(2, partial(work, "refuse"))
    first, second = on_threads(2, partial(work, "zero"))
    assert torch.equal(first, second)


class Feedback(Exchange):
    """Sends half of every number, and the rest with the next ones."""

    def __init__(self):
        self.state = ParameterState()

    def __call__(self, group, bucket):
        residual = self.state.flat(bucket)
        bucket.flat.add_(residual)
        torch.mul(bucket.flat, 0.5, out=residual)
        bucket.flat.sub_(residual)
        return group.all_reduce(bucket.flat)

    def pieces(self):
        return self.state.pieces()

    def load(self, pieces):
        self.state.load(pieces)


def test_saving_leaves_no_trace_in_the_exchange():
    def work(saves, group):
        strategy = made(LocalSync, LocalConfig(every=2), replica(SGD), group, Feedback())
        return trained(strategy, (6, 6), saves=saves)[-1]

    without, with_saves = (on_threads(2, partial(work, saves)) for saves in (False, True))
    assert all(torch.equal(a, b) for a, b in zip(without, with_saves, strict=True))


# Settings.


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--strategy.every 0", "every: expected an integer ≥ 1, got 0"),
        ("--strategy.fragments 0", "fragments: expected an integer ≥ 1, got 0"),
        ("--strategy.overlap -1", "overlap: expected an integer ≥ 0, got -1"),
        ("--strategy.every 5 --strategy.overlap 6", "overlap 6 is more than --strategy.every 5"),
        ("--strategy.overlap 1 --strategy.moments average", "needs averages without delay"),
        ("--strategy.outer_momentum 1", "outer_momentum: expected a number ≥ 0 and < 1"),
        ("--strategy.outer_lr 0", "outer_lr: expected a number > 0"),
    ],
)
def test_impossible_settings_are_refused(flags, sentence):
    with pytest.raises(ConfigError) as caught:
        read(None, f"--strategy local --workers 2 {flags}".split())
    assert sentence in str(caught.value)
