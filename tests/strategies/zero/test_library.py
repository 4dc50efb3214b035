"""`shoal.zero` in a loop of the user's own: the updates of one machine, on uneven shares too."""

import pytest
import torch
from strategy_cases import distance, on_threads
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import shoal
from shoal.errors import ConfigError

pytestmark = pytest.mark.filterwarnings(
    "ignore:None of the inputs have requires_grad"
)  # checkpoint, evaluated
SHARES = [(4, 4), (7, 1), (5, 3)]
STEPS = range(3)
WAYS = ["stage 1", "stage 2", "stage 3", "stage 3, gathered"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(6, 40), nn.Linear(40, 40), nn.LayerNorm(40)
        self.last = nn.Linear(40, 3)

    def forward(self, inputs):
        x = self.first(inputs).relu()
        return self.last(self.norm(checkpoint(self.second, x, use_reentrant=True)))


def model_of(seed=0):
    draw = torch.Generator().manual_seed(seed)
    model = Net().double()
    with torch.no_grad():
        for param in model.parameters():
            param.copy_(torch.randn(param.shape, generator=draw, dtype=torch.float64) / 3)
    return model


def samples():
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(len(SHARES), 8, 6, generator=draw, dtype=torch.float64)
    return inputs, torch.randint(3, (len(SHARES), 8), generator=draw)


def adam(params):
    return torch.optim.Adam(params, lr=0.01)


def one_machine(clip_norm=None, steps=STEPS):
    model, (inputs, labels) = model_of(), samples()
    optimizer = adam(model.parameters())
    for step in steps:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs[step]), labels[step]).backward()
        if clip_norm is not None:
            norm = nn.utils.get_total_norm([param.grad for param in model.parameters()])
            for param in model.parameters():
                param.grad *= min(1, clip_norm / norm)
        optimizer.step()
    return model.state_dict()


def sharded_on(group, way, make=adam, seed=None, **options):
    group.maps_memory = "gathered" not in way
    model = model_of(group.rank if seed is None else seed)
    return shoal.zero(model, make, int(way[6]), group, unit_mib=1e-3, **options)


def train(sharded, shares, clip_norm=None, parts=1, steps=STEPS):
    group, (inputs, labels) = sharded.group, samples()
    for step in steps:
        start, count = sum(shares[step][: group.rank]), shares[step][group.rank]
        mine = slice(start, start + count)
        own_inputs, own_labels = inputs[step][mine], labels[step][mine]
        with sharded.batch(num_samples=count):
            for part in range(parts):
                x, y = own_inputs[part::parts], own_labels[part::parts]
                (F.cross_entropy(sharded(x), y, reduction="sum") / max(count, 1)).backward()
        sharded.step(clip_norm)


def assert_equals(state, expected):
    for name, tensor in expected.items():
        assert distance(state[f"model.{name}"], tensor) <= 1e-12, name


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("clip_norm", "parts"), [(None, 1), (0.1, 1), (None, 2)])
def test_uneven_shares_are_exact(way, clip_norm, parts):
    def work(group):
        sharded = sharded_on(group, way)
        # Without samples: an empty batch.
        train(sharded, [*SHARES[:2], (8, 0)], clip_norm, parts)
        return sharded.state_dict()

    state, nothing = on_threads(2, work)
    assert_equals(state, one_machine(clip_norm))
    assert nothing == {}


@pytest.mark.parametrize("way", WAYS[:3])
def test_a_worker_without_samples_may_run_nothing(way):
    def work(group):
        sharded, (inputs, labels) = sharded_on(group, way), samples()
        for step in STEPS:
            with sharded.batch(num_samples=8 if group.rank == 1 else 0):
                if group.rank == 1:
                    F.cross_entropy(sharded(inputs[step]), labels[step]).backward()
            sharded.step()
        return sharded.state_dict()

    assert_equals(on_threads(2, work)[0], one_machine())


@pytest.mark.parametrize("way", WAYS)
def test_without_numbers_of_samples_it_is_the_mean_over_workers(way):
    def work(group):
        sharded, (inputs, labels) = sharded_on(group, way), samples()
        model = sharded.model
        for step in STEPS:
            mine = slice(4 * group.rank, 4 * group.rank + 4)
            F.cross_entropy(model(inputs[step][mine]), labels[step][mine]).backward()
            sharded.step()
        model.eval()
        with torch.no_grad():
            outputs = model(inputs[0])
        return outputs, sharded.state_dict()

    reference = model_of()
    reference.load_state_dict(one_machine())
    for outputs, _ in (found := on_threads(2, work)):
        assert distance(outputs, reference(samples()[0][0])) <= 1e-10
    assert_equals(found[0][1], one_machine())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("owner", ["optimizer", "model"])
def test_zero_grad_drops_the_gradients_before_it_and_no_others(way, owner):
    def work(group):
        sharded, (inputs, labels) = sharded_on(group, way), samples()
        mine = slice(4 * group.rank, 4 * group.rank + 4)
        for step in STEPS:
            (7 * sharded(inputs[step - 1][mine])).sum().backward()
            getattr(sharded, owner).zero_grad(set_to_none=True)
            F.cross_entropy(sharded(inputs[step][mine]), labels[step][mine]).backward()
            sharded.step()
        return sharded.state_dict()

    assert_equals(on_threads(2, work)[0], one_machine())


@pytest.mark.parametrize(
    ("saved", "loaded", "size"), [("stage 3", "stage 1", 3), ("stage 1", "stage 3, gathered", 2)]
)
def test_a_state_goes_from_one_stage_and_number_of_workers_to_another(saved, loaded, size):
    def first(group):
        sharded = sharded_on(group, saved)
        train(sharded, SHARES, steps=range(2))
        return sharded.state_dict()

    state = on_threads(2, first)[0]

    def then(group):
        sharded = sharded_on(group, loaded, seed=9)
        sharded.load_state_dict(state)
        train(sharded, [(4, 3, 1)[:size] if size == 3 else (5, 3)] * 3, steps=range(2, 3))
        return sharded.state_dict()

    assert_equals(on_threads(size, then)[0], one_machine())


def test_a_schedule_changes_the_rate():
    def work(group):
        sharded = sharded_on(group, "stage 3")
        schedule = torch.optim.lr_scheduler.StepLR(sharded.optimizer, 1, gamma=0.0)
        train(sharded, SHARES, steps=range(1))
        schedule.step()
        train(sharded, SHARES, steps=range(1, 3))
        return sharded.state_dict()

    assert_equals(on_threads(2, work)[0], one_machine(steps=range(1)))


def test_misuse_is_named():
    def refused(match, work):
        with pytest.raises(ConfigError, match=match):
            on_threads(2, work)

    def no_pass(group):
        with sharded_on(group, "stage 2").batch(num_samples=4):
            pass

    def empty_and_gathered(group):
        sharded = sharded_on(group, "stage 3, gathered")
        with sharded.batch(num_samples=group.rank):
            if group.rank == 1:
                raise ConfigError("model(inputs[:0])")

    refused("stage must be 1, 2 or 3, not 4", lambda group: sharded_on(group, "stage 4"))
    refused(
        "Adafactor is not known to update each element",
        lambda group: sharded_on(group, "stage 3", make=torch.optim.Adafactor),
    )
    refused(r"batch\(num_samples=4\) ended without a backward pass", no_pass)
    refused("without a backward pass before it", lambda group: sharded_on(group, "stage 3").step())
    refused(r"model\(inputs\[:0\]\)|empty batch|ended without", empty_and_gathered)
    refused("no worker has samples", lambda group: sharded_on(group, "stage 1").batch(0).__enter__())
    refused("the model has no parameter to train", lambda group: shoal.zero(nn.ReLU(), adam, 1, group))


def test_a_failed_backward_pass_starts_the_step_afresh():
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise RuntimeError("no luck")

    def work(group):
        sharded, (inputs, _) = sharded_on(group, "stage 3, gathered"), samples()
        model = sharded.model
        outputs = model.last(model.norm(Failing.apply(model.second(model.first(inputs[0])))))
        with pytest.raises(RuntimeError, match="no luck"):
            outputs.sum().backward()
        train(sharded, SHARES)
        return sharded.state_dict()

    assert_equals(on_threads(2, work)[0], one_machine())


@pytest.mark.parametrize("way", ["stage 1", "stage 3", "stage 3, gathered"])
def test_the_state_of_the_model_has_its_names_and_one_tensor_for_tied_weights(way):
    def work(group):
        group.maps_memory = "gathered" not in way
        model = nn.Sequential(nn.Linear(40, 40), nn.BatchNorm1d(40), nn.Linear(40, 40))
        torch.nn.init.ones_(model[0].weight)
        model[2].weight = model[0].weight
        sharded = shoal.zero(model, adam, int(way[6]), group, unit_mib=1e-3)
        return sharded.model_state_dict(), list(model.state_dict())

    (state, names), (nothing, _) = on_threads(2, work)
    assert list(state) == names
    assert state["0.weight"] is state["2.weight"]
    assert torch.equal(state["0.weight"], torch.ones(40, 40))
    assert state["1.running_var"].tolist() == [1.0] * 40
    assert nothing == {}


class CheckpointedTwice(Net):
    def forward(self, inputs):
        x = self.first(inputs).relu()
        for _ in range(2):
            x = checkpoint(self.second, x, use_reentrant=True)
        return self.last(self.norm(x))


@pytest.mark.parametrize("stage", [2, 3])
def test_a_gradient_that_comes_when_its_unit_has_gone_is_refused(stage):
    """A backward pass inside another completes the gradients of a block each time."""

    def work(group):
        model = CheckpointedTwice().double()
        sharded = shoal.zero(model, adam, stage, group, unit_mib=1e-3)
        inputs, labels = samples()
        with sharded.batch(num_samples=8):
            F.cross_entropy(model(inputs[0]), labels[0]).backward()

    with pytest.raises(ConfigError, match=r"'second\.\w+' got a second gradient .*\n.*use_reentrant=False"):
        on_threads(2, work)
