"""An optimizer that is made from `model.parameters()` after the training was divided: one machine's updates."""

import pytest
import torch
from strategy_cases import distance, on_threads
from torch import nn
from torch.nn import functional as F

import shoal
from shoal.errors import ConfigError

WAYS = ["stage 1", "stage 2", "stage 3", "stage 3, gathered"]
STEPS = 4


def model_of():
    draw = torch.Generator().manual_seed(0)
    model = nn.Sequential(
        nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 40), nn.LayerNorm(40), nn.Linear(40, 3)
    ).double()
    with torch.no_grad():
        for param in model.parameters():
            param.copy_(torch.randn(param.shape, generator=draw, dtype=torch.float64) / 3)
    model[0].bias.requires_grad_(False)
    return model


def samples():
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(STEPS, 8, 6, generator=draw, dtype=torch.float64)
    return inputs, torch.randint(3, (STEPS, 8), generator=draw)


def optimizer_of(model):
    decays = [param for param in model.parameters() if param.dim() > 1]
    others = [param for param in model.parameters() if param.dim() <= 1]
    groups = [{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.05)


def train(model, optimizer, rank=0, size=1, steps=range(STEPS), schedule=None):
    """The loop of one machine; each worker has a part of the samples."""
    inputs, labels = samples()
    for step in steps:
        F.cross_entropy(model(inputs[step][rank::size]), labels[step][rank::size]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        if schedule is not None:
            schedule.step()


def sharded_on(group, way, *make):
    group.maps_memory = "gathered" not in way
    return shoal.zero(model_of(), *make, stage=int(way[6]), group=group, unit_mib=1e-3)


def assert_equals(state, model):
    for name, tensor in model.state_dict().items():
        assert distance(state[name], tensor) <= 1e-12, name


@pytest.mark.filterwarnings("error")  # torch warns of a schedule that misses steps
@pytest.mark.parametrize("way", WAYS)
def test_its_updates_are_those_of_one_machine(way):
    def work(group):
        sharded = sharded_on(group, way)
        model = sharded.model
        optimizer = optimizer_of(model)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        train(model, optimizer, group.rank, group.size, schedule=schedule)
        held = sum(state["exp_avg"].numel() for state in optimizer.state.values())
        assert sharded.optimizer is optimizer
        return sharded.model_state_dict(), held

    model = model_of()
    optimizer = optimizer_of(model)
    train(model, optimizer, schedule=torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5))
    (state, first), (_, second) = on_threads(2, work)
    assert_equals(state, model)
    assert min(first, second) > 0
    assert first + second == sum(param.numel() for param in model.parameters() if param.requires_grad)


@pytest.mark.parametrize("make", [(), (lambda params: torch.optim.AdamW(params, lr=0.05, weight_decay=0.1),)])
def test_a_saved_state_is_loaded_before_the_first_step(make):
    """Saved with two workers, and continued by three with another stage."""

    def adamw(model):
        return torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)

    def first(group):
        sharded = sharded_on(group, "stage 3", *make)
        optimizer = sharded.optimizer if make else adamw(sharded.model)
        train(sharded.model, optimizer, group.rank, group.size, range(2))
        return sharded.state_dict()

    saved = on_threads(2, first)[0]
    assert any(name.startswith("optim.") for name in saved)

    def then(group):
        sharded = sharded_on(group, "stage 2")
        optimizer = adamw(sharded.model)
        sharded.load_state_dict(saved, optimizer)
        train(sharded.model, optimizer, group.rank, group.size, range(2, STEPS))
        return sharded.model_state_dict()

    model = model_of()
    train(model, adamw(model))
    assert_equals(on_threads(2, then)[0], model)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_saved_state_stays_as_it_is(workers):
    def work(group, saved):
        sharded = sharded_on(group, "stage 3")
        optimizer = optimizer_of(sharded.model)
        if saved:
            sharded.load_state_dict(saved, optimizer)
        train(sharded.model, optimizer, group.rank, group.size, range(2))
        return sharded.state_dict()

    saved = on_threads(workers, lambda group: work(group, None))[0]
    kept = {name: tensor.clone() for name, tensor in saved.items()}
    first, again = (on_threads(workers, lambda group: work(group, saved))[0] for _ in range(2))
    assert all(torch.equal(saved[name], tensor) for name, tensor in kept.items())
    assert all(distance(again[name], tensor) <= 1e-12 for name, tensor in first.items())
    assert first["optim.2.weight.step"] == 4


def backward(sharded):
    inputs, labels = samples()
    F.cross_entropy(sharded(inputs[0]), labels[0]).backward()
    return sharded.model


def sgd(params):
    return torch.optim.SGD(params, lr=0.1)


def test_misuse_is_named():
    def refused(match, work):
        with pytest.raises(ConfigError, match=match):
            work(shoal.zero(model_of(), stage=3))

    def second(sharded):
        sgd(backward(sharded)[0].parameters()).step()
        sgd(backward(sharded)[2].parameters()).step()

    def loaded(sharded):
        alike = model_of()
        optimizer, other = (torch.optim.Adam(each.parameters()) for each in (sharded.model, alike))
        alike(samples()[0][0]).sum().backward()
        other.step()
        optimizer.load_state_dict(other.state_dict())
        backward(sharded)
        optimizer.step()

    def foreign(sharded):
        sgd([*backward(sharded).parameters(), nn.Parameter(torch.zeros(1))]).step()

    refused(r"has an optimizer \(SGD\), and another one \(SGD\)", second)
    refused("SGD updates 1 of 9 tensors that are not parameters", foreign)
    refused("Adam has state of whole parameters before its first step", loaded)
    refused(
        r"Adagrad has state of whole .*\n.*shoal.zero\(model, lambda params: Adagrad\(params\)\)",
        lambda sharded: torch.optim.Adagrad(backward(sharded).parameters()).step(),
    )
    refused(
        "Adafactor is not known to update each element",
        lambda sharded: torch.optim.Adafactor(backward(sharded).parameters()).step(),
    )
    refused(r"SGD.step\(closure\)", lambda sharded: sgd(backward(sharded).parameters()).step(lambda: 1.0))
    refused("the training has no optimizer yet", lambda sharded: sharded.optimizer)
    refused("the training has no optimizer yet", lambda sharded: (backward(sharded), sharded.step()))
    with pytest.raises(ConfigError, match="offload='file' needs make_optimizer"):
        shoal.zero(model_of(), offload="file")


def test_a_state_with_an_optimizer_needs_one_and_changes_nothing_without():
    saved = shoal.zero(model_of(), lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9))
    backward(saved)
    saved.step()
    state, other = saved.state_dict(), shoal.zero(model_of())
    with pytest.raises(ConfigError, match="no optimizer yet"):
        other.load_state_dict(state)
    assert_equals(other.model_state_dict(), model_of())
    other.load_state_dict({name: tensor for name, tensor in state.items() if name.startswith("model.")})
    assert_equals(other.model_state_dict(), saved.model)


def test_other_optimizers_are_left_alone():
    sharded = shoal.zero(model_of())
    optimizer = sgd(backward(sharded).parameters())
    apart = nn.Linear(2, 2)
    apart(torch.ones(1, 2)).sum().backward()
    before = apart.weight.detach().clone()
    sgd(apart.parameters()).step()
    assert not torch.equal(apart.weight, before)
    optimizer.step()
    assert sharded.optimizer is optimizer
