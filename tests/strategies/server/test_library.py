"""`shoal.ParameterServer` in a loop of the user's own."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import shoal
from shoal.comm.threads.group import run_threads
from shoal.errors import ConfigError

STEPS = 6


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)).double()


def batch(step):
    draw = torch.Generator().manual_seed(step)
    return torch.randn(8, 5, generator=draw).double(), torch.randint(3, (8,), generator=draw)


def adam(params):
    return torch.optim.Adam(params, lr=0.05)


def one_machine(optimizer=adam):
    model = network()
    stepper = optimizer(model.parameters())
    for step in range(STEPS):
        stepper.zero_grad()
        inputs, labels = batch(step)
        F.cross_entropy(model(inputs), labels).backward()
        stepper.step()
    return model.state_dict()


def trained(models, size, servers, steps=lambda rank: STEPS, optimizer=adam, **options):
    """What `run` returns on every rank: the weights that a worker ends with."""

    def work(group):
        model = models[group.rank]
        server = shoal.ParameterServer(model, optimizer, servers=servers, group=group, **options)

        def train():
            rank = server.workers.rank
            for step in range(steps(rank)):
                server.zero_grad()
                inputs, labels = batch(step)
                F.cross_entropy(model(inputs[rank::size]), labels[rank::size]).backward()
                server.step()
            return rank

        return server.run(train), model.state_dict(), None if server.serves else server.version

    return run_threads(size + servers, work)


@pytest.mark.parametrize(("size", "servers"), [(1, 1), (2, 1), (2, 2)])
@pytest.mark.filterwarnings("ignore:the workers' initial parameters differed")
def test_bsp_is_one_machine_whatever_the_workers_start_from(size, servers):
    found = trained([network(seed) for seed in range(4)], size, servers, mode="bsp")
    assert [returned for returned, _, _ in found] == [*range(size), *[None] * servers]
    for _, weights, version in found[:size]:
        assert version == STEPS
        for name, tensor in one_machine().items():
            torch.testing.assert_close(weights[name], tensor, rtol=1e-10, atol=1e-12)


def test_asp_workers_may_make_different_numbers_of_steps_and_end_with_the_same_weights():
    found = trained([network() for _ in range(3)], 2, 1, steps=lambda rank: 3 + 4 * rank, mode="asp")
    (_, first, version), (_, second, _), _ = found
    assert version == 3 + 7
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["0.weight"], network().state_dict()["0.weight"])


def test_ssp_trains():
    found = trained([network() for _ in range(3)], 2, 1, mode="ssp", staleness=1, damping=True)
    assert found[0][2] == 2 * STEPS


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "bsp", "staleness": 1}, "has no effect with --strategy.mode bsp"),
        ({"servers": 2}, "2 of 3 ranks would serve, which leaves 1 to train"),
        ({"servers": 5}, "5 of 3 ranks would serve, which leaves 0 to train"),
        ({"mode": "bsp", "damping": True}, "--strategy.damping true has no effect with --strategy.mode bsp"),
    ],
)
def test_what_cannot_work_is_refused(options, words):
    def work(group):
        with pytest.raises(ConfigError, match=words):
            shoal.ParameterServer(network(), adam, group=group, **options)

    run_threads(3, work)


SERVERS = "ParameterServer(servers=…): expected an integer ≥ 1, got"
STALENESS = "ParameterServer(staleness=…): expected an integer ≥ 0 or none, got"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"servers": 0}, f"{SERVERS} 0"),
        ({"servers": -1}, f"{SERVERS} -1"),
        ({"servers": 1.5}, f"{SERVERS} 1.5"),
        ({"servers": "2"}, f"{SERVERS} '2'"),
        ({"servers": True}, f"{SERVERS} True"),
        ({"servers": None}, f"{SERVERS} None"),
        ({"mode": "hogwild"}, "unknown ParameterServer(mode=…) 'hogwild' (known: asp, bsp, ssp)"),
        ({"mode": 3}, "ParameterServer(mode=…): expected 'bsp', 'ssp' or 'asp', got 3"),
        ({"mode": "ssp", "staleness": -1}, f"{STALENESS} -1"),
        ({"mode": "ssp", "staleness": 0.5}, f"{STALENESS} 0.5"),
        ({"damping": "yes"}, "ParameterServer(damping=…): expected true or false, got 'yes'"),
        ({"compensation": -1}, "ParameterServer(compensation=…): expected a number ≥ 0, got -1"),
    ],
    ids=str,
)
def test_a_bad_argument_is_refused_in_the_words_of_the_command_line(options, sentence):
    def work(group):
        with pytest.raises(ConfigError) as caught:
            shoal.ParameterServer(network(), adam, group=group, **options)
        assert str(caught.value) == sentence

    run_threads(2, work)


def test_a_server_has_no_steps():
    def work(group):
        server = shoal.ParameterServer(network(), adam, group=group)
        if server.serves:
            for use in (server.step, lambda: server.version):
                with pytest.raises(ConfigError, match="rank 1 of 2 is a server, which has no steps"):
                    use()
        return server.run(lambda: server.version)

    assert run_threads(2, work) == [0, None]


def test_a_sparse_gradient_is_refused_by_name():
    def work(group):
        torch.manual_seed(0)
        model = nn.Embedding(4, 2, sparse=True)
        server = shoal.ParameterServer(model, adam, group=group)

        def train():
            model(torch.tensor([1])).sum().backward()
            with pytest.raises(ConfigError, match="parameter 'weight' has a sparse gradient"):
                server.step()

        server.run(train)

    run_threads(2, work)
