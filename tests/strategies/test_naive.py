"""What `naive` makes of the workers' gradients: four ways to combine them, and parameters instead of gradients."""

import pytest
import torch
from strategy_cases import copy_of, made
from torch import nn

from shoal.comm.threads.group import run_threads
from shoal.comm.traced import traced
from shoal.config.sections.optimizer import AdamConfig, SgdConfig
from shoal.config.sections.sync import NaiveConfig
from shoal.data.dataset import Batch
from shoal.errors import ConfigError, MismatchError
from shoal.strategies.exchange.exchange import TrainingClock
from shoal.strategies.naive import Naive
from shoal.strategies.strategy import Share

SHARES = (7, 0, 2, 3)
SGD = SgdConfig(lr=0.1)


def model(seed=0, extra=()):
    net = nn.Sequential(nn.Linear(4, 6), *extra, nn.ReLU(), nn.Linear(6, 3)).double()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for param in net.parameters():
            param.copy_(torch.randn(param.shape, generator=draw, dtype=torch.float64))
    return net


def replica(optimizer=SGD, net=None):
    return copy_of(net or model(), optimizer)


def share(rank, step=0, shares=SHARES):
    draw = torch.Generator().manual_seed(step)
    inputs = torch.randn(sum(shares), 4, generator=draw, dtype=torch.float64)
    labels = torch.randint(3, (sum(shares),), generator=draw)
    mine = slice(sum(shares[:rank]), sum(shares[: rank + 1]))
    parts = [Batch(inputs[mine], labels[mine], shares[rank])] if shares[rank] else []
    return Share(parts, sum(shares), shares[rank])


def own_mean_gradients():
    """ḡᵢ of every worker, by torch alone."""
    gradients = []
    for rank in range(len(SHARES)):
        net = model()
        for batch in share(rank).parts:
            nn.functional.cross_entropy(net(batch.inputs), batch.labels).backward()
        gradients.append([torch.zeros_like(p) if p.grad is None else p.grad for p in net.parameters()])
    return gradients


def weights_after(config, optimizer=SGD, lr=0.1, steps=1, net=model, shares=SHARES):
    def work(group):
        mine = replica(optimizer, net())
        strategy = made(Naive, config, mine, group)
        for step in range(steps):
            strategy.step(share(group.rank, step, shares), lr)
        return [tensor.clone() for tensor in mine.model.state_dict().values()]

    members = run_threads(len(shares), work)
    for member in members:
        for ours, theirs in zip(member, members[0], strict=True):
            assert torch.equal(ours, theirs), "workers hold different bits"
    return members[0]


@pytest.mark.parametrize(
    ("combine", "weights"),
    [
        ("sum", [1.0, 1.0, 1.0, 1.0]),
        ("mean", [0.25, 0.25, 0.25, 0.25]),
        ("weighted_mean", [7 / 12, 0.0, 2 / 12, 3 / 12]),
        ("exact", [7 / 12, 0.0, 2 / 12, 3 / 12]),
    ],
)
def test_each_combination_is_what_it_says(combine, weights):
    after = weights_after(NaiveConfig(combine=combine))
    gradients = own_mean_gradients()
    for place, (param, result) in enumerate(zip(model().parameters(), after, strict=True)):
        gradient = sum(weight * grads[place] for weight, grads in zip(weights, gradients, strict=True))
        assert (result - (param - 0.1 * gradient)).abs().max() <= 1e-14


def test_the_mean_of_means_is_another_update_where_shares_are_uneven():
    mean, exact = weights_after(NaiveConfig(combine="mean")), weights_after(NaiveConfig())
    assert (mean[0] - exact[0]).abs().max() > 1e-3
    even = (3, 3, 3, 3)
    mean = weights_after(NaiveConfig(combine="mean"), shares=even)
    exact = weights_after(NaiveConfig(), shares=even)
    assert (mean[0] - exact[0]).abs().max() <= 1e-14


@pytest.mark.parametrize("optimizer", [SGD, SgdConfig(lr=0.1, momentum=0.9)])
def test_for_sgd_a_sum_is_a_mean_with_a_larger_learning_rate(optimizer):
    summed = weights_after(NaiveConfig(combine="sum"), optimizer, lr=0.01, steps=5)
    averaged = weights_after(NaiveConfig(combine="mean"), optimizer, lr=0.01 * len(SHARES), steps=5)
    for ours, theirs in zip(summed, averaged, strict=True):
        assert (ours - theirs).abs().max() / theirs.abs().max() <= 1e-15


def test_for_adam_sum_and_mean_hardly_differ():
    adam = AdamConfig(lr=0.01)
    summed = weights_after(NaiveConfig(combine="sum"), adam, lr=0.01, steps=5)
    averaged = weights_after(NaiveConfig(combine="mean"), adam, lr=0.01, steps=5)
    assert (summed[0] - averaged[0]).abs().max() <= 1e-6


def test_averaged_parameters_are_not_adams():
    """The docstring says so: the mean of quotients is no quotient of means."""
    adam = AdamConfig(lr=0.01)
    parameters = weights_after(NaiveConfig(aggregate="parameters"), adam, lr=0.01, steps=3)
    exact = weights_after(NaiveConfig(), adam, lr=0.01, steps=3)
    assert (parameters[0] - exact[0]).abs().max() > 1e-4


def test_parameters_may_also_be_averaged_without_weights():
    after = weights_after(NaiveConfig(aggregate="parameters", combine="mean"))
    gradients = own_mean_gradients()
    for place, (param, result) in enumerate(zip(model().parameters(), after, strict=True)):
        updated = [param - 0.1 * grads[place] for grads in gradients]
        assert (result - sum(updated) / 4).abs().max() <= 1e-14


def test_statistics_of_a_model_are_averaged_with_its_parameters():
    """Batch norm's running mean is each worker's own: after the exchange all have the same."""
    net = lambda: model(extra=(nn.BatchNorm1d(6).double(),))  # noqa: E731
    after = weights_after(NaiveConfig(aggregate="parameters"), net=net, shares=(5, 7))
    assert len(after) == 9


def test_steps_are_counted_not_averaged():
    def work(group):
        mine = replica(AdamConfig(lr=0.01))
        config = NaiveConfig(aggregate="parameters")
        strategy = made(Naive, config, mine, group)
        for step in range(3):
            strategy.step(share(group.rank, step, (1, 4, 2)), 0.01)
        return [piece for name, piece in mine.pieces().items() if name.endswith(".step")]

    for steps in run_threads(3, work):
        assert steps
        assert all(step.item() == 3 for step in steps)


def test_gradients_that_do_not_lie_flat_in_memory():
    class Transposed(nn.Module):
        """Its weight's gradient is a transposed view."""

        def __init__(self):
            super().__init__()
            draw = torch.Generator().manual_seed(1)
            self.weight = nn.Parameter(torch.randn(4, 3, generator=draw, dtype=torch.float64).t())

        def forward(self, inputs):
            return inputs @ self.weight.t()

    for aggregate in ("gradients", "parameters"):
        (together,) = weights_after(NaiveConfig(aggregate=aggregate), net=Transposed, shares=(3, 9))
        (alone,) = weights_after(NaiveConfig(), net=Transposed, shares=(12,))
        assert (together - alone).abs().max() <= 1e-14


def test_nothing_is_exchanged_but_what_the_docstring_counts():
    """One exchange for each of four parameters and two small all-reduces; with momentum as many again."""

    def work(group):
        group = traced(group)
        counts = {}
        for aggregate in ("gradients", "parameters"):
            config = NaiveConfig(aggregate=aggregate)
            strategy = made(Naive, config, replica(SgdConfig(lr=0.1, momentum=0.9)), group)
            before = group.totals["all_reduce"].calls if "all_reduce" in group.totals else 0
            strategy.step(share(group.rank), 0.1)
            counts[aggregate] = group.totals["all_reduce"].calls - before
        return counts

    assert run_threads(4, work)[0] == {"gradients": 4 + 2, "parameters": 2 * 4 + 2}


def test_other_initial_parameters_are_said_or_refused():
    def work(group, config):
        made(Naive, config, replica(net=model(seed=group.rank)), group)

    with pytest.warns(UserWarning, match="'0.weight' of rank 1 is not rank 0's"):
        run_threads(2, lambda group: work(group, NaiveConfig()))
    with pytest.raises(MismatchError, match="'0.weight' of rank 1 is not rank 0's"):
        run_threads(2, lambda group: work(group, NaiveConfig(check_init=True)))


def test_a_sum_of_parameters_is_refused():
    with pytest.raises(ConfigError, match="--aggregate parameters --combine sum multiplies"):
        NaiveConfig(aggregate="parameters", combine="sum")


def test_the_combination_changes_by_stage_of_the_training():
    """Two steps of the sum and two of the mean: as with the rates η·W, η·W, η, η and the mean throughout."""
    clock = TrainingClock(total_steps=4)

    def train(config, rates):
        def work(group):
            mine = replica(SGD, model())
            strategy = made(Naive, config, mine, group, training_clock=clock)
            for step, lr in enumerate(rates):
                group.barrier().wait()
                clock.step = step
                strategy.step(share(group.rank, step), lr)
            return [tensor.clone() for tensor in mine.model.state_dict().values()]

        return run_threads(len(SHARES), work)[0]

    staged = train(NaiveConfig(combine_stages=("0=sum", "0.5=mean")), [0.01] * 4)
    size = len(SHARES)
    steady = train(NaiveConfig(combine="mean"), [0.01 * size, 0.01 * size, 0.01, 0.01])
    for ours, theirs in zip(staged, steady, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"combine_stages": ("0.5=sum",)}, "must start at 0 and increase, got 0.5"),
        ({"combine_stages": ("0=sum", "0=mean")}, "must start at 0 and increase, got 0, 0"),
        ({"combine_stages": ("0=sun",)}, "unknown combine 'sun'"),
        ({"combine_stages": ("x=sum",)}, "START=COMBINE with 0 ≤ START < 1, got 'x=sum'"),
        ({"combine_stages": ("0=sum",), "combine": "mean"}, "--combine mean has no effect"),
        ({"combine_stages": ("0=mean", "0.5=sum"), "aggregate": "parameters"}, "multiplies the parameters"),
    ],
)
def test_stages_that_cannot_be_are_refused_in_a_sentence(settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        NaiveConfig(**settings)
