"""Objects of a user's loop that are not the whole story: the optimizer of slices, parameters unfrozen too late."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import shoal
from shoal.comm.threads.group import run_threads
from shoal.errors import ConfigError

WAYS = ["onecopy", "zero 1", "zero 2", "zero 3", "ddp"]


def network(seed=0):
    """More elements than a chunk, so that both workers own some."""
    model = nn.Sequential(
        nn.Linear(6, 60), nn.Tanh(), nn.Linear(60, 60), nn.Tanh(), nn.Linear(60, 3)
    ).double()
    draw = torch.Generator().manual_seed(seed)
    for param in model.parameters():
        nn.init.normal_(param, std=0.3, generator=draw)
    return model


def samples():
    draw = torch.Generator().manual_seed(1)
    return torch.randn(8, 6, generator=draw, dtype=torch.float64), torch.arange(8) % 3


def divided(way, model, make_optimizer, group, **options):
    if way == "onecopy":
        return shoal.OneCopy(model, make_optimizer, group, **options)
    return shoal.zero(model, make_optimizer, int(way[5]), group, unit_mib=1e-3, **options)


def matrices_decay(params):
    """What many programs do: weights decay, biases do not, and have a rate of their own."""
    params = list(params)
    return torch.optim.AdamW(
        [
            {"params": [param for param in params if param.dim() > 1], "weight_decay": 0.5},
            {"params": [param for param in params if param.dim() < 2], "weight_decay": 0.0, "lr": 0.1},
        ],
        lr=0.01,
    )


def steps(model, optimizer, inputs, labels):
    """A loop that knows nothing but an optimizer and a schedule."""
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize("way", WAYS[:4])
def test_step_of_the_optimizer_is_the_step_of_all_workers(way):
    """With parameter groups by shape, which slices of parameters do not have."""
    inputs, labels = samples()
    expected = network()
    steps(expected, matrices_decay(expected.parameters()), inputs, labels)

    def work(group):
        model = network(seed=group.rank)
        shared = divided(way, model, matrices_decay, group)
        mine = slice(4 * group.rank, 4 * group.rank + 4)
        steps(model, shared.optimizer, inputs[mine], labels[mine])
        group.barrier().wait()
        return [param.detach().clone() for param in model.parameters()]

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the schedule has seen the optimizer step
        found = run_threads(2, work)
    for params in found:
        for param, wanted in zip(params, expected.parameters(), strict=True):
            torch.testing.assert_close(param, wanted.detach(), rtol=1e-9, atol=1e-12)


def test_a_closure_is_refused():
    model = network()
    sharded = shoal.zero(model, matrices_decay)
    with pytest.raises(ConfigError, match=r"AdamW.step\(closure\) is not supported"):
        sharded.optimizer.step(lambda: 0.0)


@pytest.mark.parametrize("way", WAYS)
def test_a_parameter_that_is_unfrozen_too_late_is_named(way):
    def work(group):
        model = network()
        model[2].weight.requires_grad_(False)
        if way == "ddp":
            trained = shoal.DistributedDataParallel(model, group)
        else:
            trained, shared = model, divided(way, model, matrices_decay, group)
        model[2].weight.requires_grad_(True)
        trained(samples()[0]).sum().backward()
        if way != "ddp":
            shared.step()

    with pytest.raises(ConfigError, match=r"parameter '2.weight' was frozen when the training was set up"):
        run_threads(2, work)


def test_a_model_may_be_wrapped_again_after_it_is_unfrozen():
    def work(group):
        model = network()
        model[2].requires_grad_(False)
        wrapped = shoal.DistributedDataParallel(model, group)
        model[2].requires_grad_(True)
        wrapped = shoal.DistributedDataParallel(wrapped.module, group)
        (wrapped(samples()[0]) * (group.rank + 1)).sum().backward()
        return model[2].weight.grad.clone()

    first, second = run_threads(2, work)
    assert torch.equal(first, second)
    assert first.abs().sum() > 0


@pytest.mark.parametrize("way", WAYS[:4])
@pytest.mark.parametrize("change", [lambda model: model.float(), lambda model: copied(model[0].weight)])
def test_parameters_in_other_memory_are_refused(way, change):
    """Updates would go to the memory that they had."""

    def work(group):
        model = network()
        shared = divided(way, model, matrices_decay, group)
        inputs = samples()[0]
        model(inputs).sum().backward()
        shared.step()
        model(inputs).sum().backward()
        change(model)
        shared.step()

    with pytest.raises(
        ConfigError, match=r"parameter '0.weight' has other memory than when the training was set up"
    ):
        run_threads(2, work)


def copied(param):
    param.data = param.data.clone()


@pytest.mark.parametrize("way", WAYS[:4])
def test_weights_may_be_swapped_and_restored(way):
    """As averages of weights are, for an evaluation."""

    def work(group):
        model = network()
        shared = divided(way, model, matrices_decay, group)
        for _ in range(2):
            model(samples()[0]).sum().backward()
            shared.step()
            kept = model[0].weight.data
            copied(model[0].weight)
            model[0].weight.data = kept
        return True

    assert run_threads(2, work) == [True, True]


def step_in_hooks(model):
    """As programs do that have no memory for all gradients."""

    def step(param):
        optimizers[param].step()
        optimizers[param].zero_grad()

    optimizers = {param: torch.optim.SGD([param], lr=0.1) for param in model.parameters()}
    for param in model.parameters():
        param.register_post_accumulate_grad_hook(step)


@pytest.mark.parametrize("way", [*WAYS, "ddp, early"])
@pytest.mark.parametrize("order", ["hooks first", "hooks last"])
@pytest.mark.parametrize("unused", ["refuse", "zero"])
def test_an_optimizer_that_steps_in_hooks_is_refused(way, order, unused):
    """Each worker would use its own gradient, whether or not parameters may have none."""

    def work(group):
        group.overlaps = "early" in way
        model = network()
        if order == "hooks first":
            step_in_hooks(model)
        if "ddp" in way:
            trained = shoal.DistributedDataParallel(
                model, group, find_unused_parameters=unused == "zero", bucket_cap_mb=1e-3
            )
        else:
            trained, shared = model, divided(way, model, matrices_decay, group, unused=unused)
        if order == "hooks last":
            step_in_hooks(model)
        trained(samples()[0]).sum().backward()
        if "ddp" not in way:
            shared.step()

    with pytest.raises(ConfigError, match=r"on rank \d was dropped during backward"):
        run_threads(2, work)


@pytest.mark.parametrize("way", WAYS)
def test_a_model_on_the_meta_device_is_named(way):
    def work(group):
        model = network().to("meta")
        if way == "ddp":
            shoal.DistributedDataParallel(model, group)
        else:
            divided(way, model, matrices_decay, group)

    with pytest.raises(ConfigError, match="'0.weight' of the model is on the meta device"):
        run_threads(2, work)
