"""`shoal.OneCopy` in a user's loop: one machine's weights, on even, uneven and empty shares."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import shoal
from shoal.comm.threads.group import run_threads
from shoal.errors import ConfigError


def network():
    """Threads share torch's random state, so weights are drawn from a generator of their own."""
    model = nn.Sequential(nn.Linear(6, 300), nn.Tanh(), nn.Linear(300, 5)).double()
    draw = torch.Generator().manual_seed(0)
    for param in model.parameters():
        nn.init.normal_(param, std=0.3, generator=draw)
    return model


def samples():
    draw = torch.Generator().manual_seed(1)
    return torch.randn(12, 6, generator=draw, dtype=torch.float64), torch.arange(12) % 5


def make_optimizer(params):
    return torch.optim.Adam(params, lr=0.01)


def one_machine(clip_norm):
    model, (inputs, labels) = network(), samples()
    optimizer = make_optimizer(model.parameters())
    for _ in range(5):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        if clip_norm:
            norm = nn.utils.get_total_norm([param.grad for param in model.parameters()])
            for param in model.parameters():
                param.grad *= min(1.0, clip_norm / norm)
        optimizer.step()
    return model.state_dict()


@pytest.mark.parametrize("cuts", [(6, 6), (11, 1), (0, 12)])
@pytest.mark.parametrize("clip_norm", [None, 0.05])
def test_it_equals_one_machine(cuts, clip_norm):
    def work(group):
        model, (inputs, labels) = network(), samples()
        shared = shoal.OneCopy(model, make_optimizer, group)
        first = sum(cuts[: group.rank])
        mine = slice(first, first + cuts[group.rank])
        for _ in range(5):
            shared.zero_grad()
            if cuts[group.rank]:
                F.cross_entropy(shared(inputs[mine]), labels[mine]).backward()
            shared.step(cuts[group.rank], clip_norm)
        return model.state_dict()

    for state in run_threads(2, work):
        for name, expected in one_machine(clip_norm).items():
            torch.testing.assert_close(state[name], expected, rtol=1e-6, atol=1e-9)


def test_gradients_are_averaged_without_numbers_of_samples():
    def work(group):
        model = nn.Linear(2000, 1, bias=False)
        nn.init.zeros_(model.weight)
        shared = shoal.OneCopy(model, lambda params: torch.optim.SGD(params, lr=1.0), group)
        (model(torch.ones(1, 2000)) * (group.rank + 1)).sum().backward()
        shared.step()
        return model.weight.detach().unique().tolist()

    assert run_threads(2, work) == [[-1.5], [-1.5]]


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_of_the_optimizer_drops_gradients_and_not_the_updates(set_to_none):
    def work(group):
        model = nn.Linear(2000, 1, bias=False)
        nn.init.zeros_(model.weight)
        shared = shoal.OneCopy(model, lambda params: torch.optim.SGD(params, lr=1.0), group)
        for _ in range(2):
            model(torch.full((1, 2000), 7.0)).sum().backward()
            shared.optimizer.zero_grad(set_to_none=set_to_none)
            model(torch.ones(1, 2000)).sum().backward()
            shared.step()
            model.zero_grad()
        return model.weight.detach().unique().tolist()

    assert run_threads(2, work) == [[-2.0], [-2.0]]


def test_more_workers_than_chunks_are_refused():
    with pytest.raises(ConfigError, match="too small to be divided among 3 workers"):
        run_threads(3, lambda group: shoal.OneCopy(nn.Linear(2, 2), make_optimizer, group))


class Partly(nn.Module):
    """Frozen parameters, buffers, and a layer that is never used."""

    def __init__(self, seed):
        super().__init__()
        self.first, self.frozen, self.never = nn.Linear(6, 60), nn.Linear(60, 60), nn.Linear(60, 60)
        self.register_buffer("scale", torch.ones(60))
        draw = torch.Generator().manual_seed(seed)
        for tensor in (*self.parameters(), self.scale):
            nn.init.normal_(tensor, std=0.3, generator=draw)
        self.frozen.requires_grad_(False)

    def forward(self, inputs):
        return self.frozen(torch.tanh(self.first(inputs)) * self.scale)


def test_frozen_parameters_and_buffers_are_rank_0s():
    def work(group):
        model = Partly(seed=group.rank)
        model.never = None
        shoal.OneCopy(model, make_optimizer, group)
        return model.state_dict()

    for state in run_threads(2, work):
        assert all(
            torch.equal(state[name], tensor)
            for name, tensor in Partly(0).state_dict().items()
            if name in state
        )


@pytest.mark.parametrize("unused", ["refuse", "zero"])
def test_parameters_without_a_gradient_are_named_or_left_alone(unused):
    def work(group):
        model = Partly(seed=0)
        shared = shoal.OneCopy(
            model, lambda params: torch.optim.SGD(params, lr=0.1, weight_decay=0.5), group, unused=unused
        )
        for _ in range(2):
            shared.zero_grad()
            model(torch.ones(2, 6)).sum().backward()
            shared.step()
        return model.never.weight.detach().clone(), model.first.weight.detach().clone()

    if unused == "refuse":
        with pytest.raises(ConfigError, match="no gradient reached 'never.weight', 'never.bias'"):
            run_threads(2, work)
        return
    for never, first in run_threads(2, work):
        assert torch.equal(never, Partly(0).never.weight)  # no decay either: the optimizer skips it
        assert not torch.equal(first, Partly(0).first.weight)


def test_synchronised_batch_norm_sees_all_workers_samples():
    inputs = samples()[0]

    def work(group):
        model = nn.Sequential(nn.Linear(6, 300), nn.BatchNorm1d(300)).double()
        for param in model.parameters():
            nn.init.constant_(param, 0.1)
        model = shoal.SyncBatchNorm.convert_sync_batchnorm(model)
        shared = shoal.OneCopy(model, make_optimizer, group)
        model(inputs[6 * group.rank :][:6]).square().mean().backward()
        shared.step(num_samples=6)
        mean = model[1].running_mean.clone()
        model(inputs).sum().backward()
        with pytest.raises(ConfigError, match=r"needs equally many samples on all workers, not \[1.0, 2.0\]"):
            shared.step(num_samples=1 + group.rank)
        return mean

    expected = nn.BatchNorm1d(300).double()
    expected(functional_linear(inputs))
    for mean in run_threads(2, work):
        torch.testing.assert_close(mean, expected.running_mean)


def functional_linear(inputs):
    return F.linear(
        inputs, torch.full((300, 6), 0.1, dtype=torch.float64), torch.full((300,), 0.1, dtype=torch.float64)
    )


def test_workers_without_common_memory_are_told_what_a_program_can_do():
    def work(group):
        group.maps_memory = False
        shoal.OneCopy(network(), make_optimizer, group)

    with pytest.raises(ConfigError, match="see each other's memory") as caught:
        run_threads(2, work)
    assert "shoal.DistributedDataParallel" in caught.value.hint
