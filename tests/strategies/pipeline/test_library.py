"""`shoal.Pipeline` in a loop of one's own: gradients, losses and outputs of one machine."""

import pytest
import torch
from pipeline_cases import CUTS, deep_network, pipelined, seeded
from strategy_cases import OPTIMIZERS, samples
from torch import nn

import shoal
from shoal.comm.threads.group import run_threads
from shoal.data.dataset import Batch
from shoal.errors import ConfigError
from shoal.strategies.pieces.whole_tensors import WholeTensors
from shoal.strategies.pipeline.settings import PipelineConfig
from shoal.strategies.strategy import Share

pytestmark = pytest.mark.filterwarnings("ignore:the workers' initial parameters differed")
INPUTS = torch.linspace(-2, 2, 10 * 6, dtype=torch.float64).view(10, 6).sin()
LABELS = torch.arange(10) % 3


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 7), nn.ReLU(), nn.Linear(7, 3)).double()


def train(step, parameters, steps=4):
    optimizer = torch.optim.Adam(parameters, lr=0.05)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        losses.append(step().item())
        optimizer.step()
    return losses


def one_machine():
    model, loss = network(), nn.CrossEntropyLoss()

    def step():
        value = loss(model(INPUTS), LABELS)
        value.backward()
        return value.detach()

    losses = train(step, model.parameters())
    return model, losses


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize(
    "options", [{}, {"schedule": "zero-bubble", "microbatches": 3}, {"weight_gradients_once": True}]
)
def test_trains_like_one_machine(workers, options):
    expected, losses = one_machine()
    cut = {1: [], 2: ["2"], 3: ["2", "4"]}[workers]
    models = [network(seed) for seed in range(workers)]  # different weights: rank 0's count

    def work(group):
        pipe = shoal.Pipeline(models[group.rank], group, loss=nn.CrossEntropyLoss(), cut=cut, **options)
        found = train(lambda: pipe.step(INPUTS, LABELS), pipe.parameters())
        return found, pipe(INPUTS), pipe.whole_state_dict()

    members = run_threads(workers, work)
    for found, outputs, _ in members:
        assert found == pytest.approx(losses, rel=1e-12)
        torch.testing.assert_close(outputs, expected(INPUTS).detach(), rtol=1e-12, atol=1e-12)
    state = members[0][2]
    assert state.keys() == expected.state_dict().keys()
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(state[name], tensor, rtol=1e-12, atol=1e-12)


class Ordinary(nn.Module):
    """Its forward pass alone says the order of its modules."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.act, self.second = nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 7)
        self.last = nn.Linear(7, 3)

    def forward(self, inputs):
        return self.last(self.act(self.second(self.act(self.first(inputs)))))


@pytest.mark.parametrize("cut", [["second"], []])
def test_the_order_of_an_ordinary_module_is_observed_with_the_example(cut):
    expected = Ordinary().double()
    loss = nn.functional.cross_entropy(expected(INPUTS), LABELS)
    loss.backward()
    models = [Ordinary().double() for _ in range(2)]

    def work(group):
        module = models[group.rank]
        with pytest.raises(ConfigError, match="cannot cut Ordinary into stages|needs to know where to cut"):
            shoal.Pipeline(module, group, loss=nn.CrossEntropyLoss(), cut=cut)
        pipe = shoal.Pipeline(module, group, loss=nn.CrossEntropyLoss(), cut=cut, example=INPUTS)
        value = pipe.step(INPUTS, LABELS)
        gradients = {name: each.grad for name, each in module.named_parameters() if each.grad is not None}
        return value, gradients, pipe.whole_state_dict()

    members = run_threads(2, work)
    assert members[0][2].keys() == expected.state_dict().keys()
    for value, gradients, _ in members:
        assert value.item() == pytest.approx(loss.item(), rel=1e-12)
        assert 2 <= len(gradients) < 6
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, expected.get_parameter(name).grad, rtol=1e-12, atol=1e-12)


def test_async_updates_after_every_micro_batch_as_a_run_does():
    inputs, labels = samples()
    batch = Batch(inputs[:12], labels[:12], 12)

    def work(group):
        strategy = pipelined(2, PipelineConfig("async", 4), OPTIMIZERS["gd"])(group)
        pipe = shoal.Pipeline(
            seeded(deep_network),
            group,
            loss=nn.CrossEntropyLoss(),
            cut=CUTS[2],
            schedule="async",
            microbatches=4,
        )
        optimizer = torch.optim.SGD(pipe.parameters(), lr=0.1)
        for _ in range(3):
            expected = strategy.step(Share([batch], 12, 12), 0.1).loss
            found = pipe.step(batch.inputs, batch.labels, update=optimizer.step)
            assert found.item() == pytest.approx(expected.item(), rel=1e-12)
        wholes = {name: each.clone() for name, each in WholeTensors(strategy.pieces(), group)}
        return wholes, pipe.whole_state_dict()

    expected, found = run_threads(2, work)[0]
    assert {f"model.{name}" for name in found} == expected.keys()
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[f"model.{name}"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("schedule", "update", "message"),
    [
        ("async", None, "step\\(\\) was called without update"),
        ("1f1b", lambda: None, "is for schedule async"),
    ],
)
def test_who_calls_the_optimizer_depends_on_the_schedule(schedule, update, message):
    def work(group):
        pipe = shoal.Pipeline(network(), group, loss=nn.CrossEntropyLoss(), cut=["2"], schedule=schedule)
        with pytest.raises(ConfigError, match=message):
            pipe.step(INPUTS, LABELS, update=update)

    run_threads(2, work)


def test_gradients_add_up_until_they_are_cleared():
    def work(group):
        pipe = shoal.Pipeline(network(), group, loss=nn.CrossEntropyLoss(), example=INPUTS)
        pipe.step(INPUTS, LABELS)
        once = [param.grad.clone() for param in pipe.parameters()]
        pipe.step(INPUTS, LABELS)
        return all(torch.allclose(p.grad, 2 * grad) for p, grad in zip(pipe.parameters(), once, strict=True))

    assert run_threads(2, work) == [True, True]


def test_inputs_of_another_shape_and_precision():
    """Forms of activations are learned anew."""

    class Mean(nn.Module):
        def forward(self, x):
            return x.mean(1)

    def work(group):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 4), Mean(), nn.Linear(4, 3))
        pipe = shoal.Pipeline(model, group, loss=nn.CrossEntropyLoss(), cut=["1"])
        losses = [
            pipe.step(torch.arange(4 * length).view(4, length) % 9, torch.zeros(4).long())
            for length in (2, 5)
        ]
        with torch.autocast("cpu", torch.bfloat16):
            losses.append(pipe.step(torch.ones(4, 5).long(), torch.zeros(4).long()))
        return all(loss.isfinite() for loss in losses)

    assert run_threads(2, work) == [True, True]


def test_a_saved_state_is_loaded_stage_by_stage():
    trained, _ = one_machine()

    def work(group):
        pipe = shoal.Pipeline(network(), group, loss=nn.CrossEntropyLoss(), cut=["2"])
        pipe.load_whole_state_dict(trained.state_dict())
        return pipe(INPUTS)

    for outputs in run_threads(2, work):
        torch.testing.assert_close(outputs, trained(INPUTS).detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs to know where to cut the module"),
        ({"cut": ["2", "4"]}, r"cut=\['2', '4'\] makes 3 stages, but the group has 2 workers"),
        ({"cut": ["2"], "schedule": "1b1f"}, "unknown schedule '1b1f'"),
        ({"cut": ["7"]}, "unknown layer '7'"),
        (
            {"cut": ["2"], "schedule": "async", "weight_gradients_once": True},
            "async updates after every micro-batch and cannot compute the weight gradients once",
        ),
    ],
)
def test_what_is_refused(options, message):
    def work(group):
        with pytest.raises(ConfigError, match=message):
            shoal.Pipeline(network(), group, loss=nn.CrossEntropyLoss(), **options)

    run_threads(2, work)


def test_an_activation_without_gradients_cannot_be_sent():
    class Rounded(nn.Linear):
        def forward(self, x):
            return super().forward(x).long()

    def work(group):
        model = nn.Sequential(Rounded(6, 4), nn.Linear(4, 3)).double()
        pipe = shoal.Pipeline(model, group, loss=nn.CrossEntropyLoss(), cut=["1"])
        if group.rank == 0:
            with pytest.raises(
                ConfigError, match=r"cannot cut after '0': its output is int64 \[2, 4\] for 2 samples"
            ):
                pipe.step(INPUTS, LABELS)

    run_threads(2, work)
