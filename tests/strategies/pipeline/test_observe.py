"""The order of modules, observed: where they run one after the other, and what keeps them from it."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from shoal.errors import ConfigError
from shoal.strategies.pipeline.cut import check_order, cut_by_name, must_observe
from shoal.strategies.pipeline.observe import observed_order

INPUTS = torch.linspace(-1, 1, 4 * 6).view(4, 6)


class Block(nn.Module):
    """A skip connection, and a function between two layers."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.drop = nn.Linear(8, 8), nn.Linear(8, 8), nn.Dropout(0.5)

    def forward(self, x):
        return x + self.drop(self.fc2(F.gelu(self.fc1(x))))


class Net(nn.Module):
    """An ordinary model; the arguments are what may stand between its modules, and after the last one."""

    def __init__(self, between=lambda net, x: x, after=lambda net, x: x):
        super().__init__()
        self.embed, self.norm = nn.Linear(6, 8), nn.BatchNorm1d(8)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.act = nn.ReLU(inplace=True)
        self.body = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.head = nn.Linear(8, 3)
        self.between, self.after = between, after

    def forward(self, x):
        x = self.act(self.norm(self.embed(x)))
        for block in self.blocks:
            x = block(x)
        x = self.between(self, self.act(x))
        return self.after(self, self.head(self.body(x)))


ORDER = ("embed", "norm", "act", "blocks.0", "blocks.1", "blocks.2", "act", "body.0", "body.1", "head")


def stages(model, *cut):
    order = observed_order(model, INPUTS)
    found = cut_by_name(model, cut, order)
    check_order(model, found, INPUTS)
    return [[name for name, _ in stage] for stage in found]


def test_modules_that_run_one_after_the_other():
    assert observed_order(Net(), INPUTS).names == ORDER
    assert stages(Net(), "blocks.1", "body") == [[*ORDER[:4]], [*ORDER[4:7]], [*ORDER[7:]]]


def test_functions_that_change_nothing_are_no_obstacle():
    assert observed_order(Net(lambda net, x: x.contiguous().float()), INPUTS).names == ORDER


def test_a_sequence_is_cut_inside_a_module_of_ones_own():
    model = nn.Sequential(nn.Flatten(), Net(), nn.Linear(3, 2))
    assert must_observe(model, ["1.blocks.1"])
    assert not must_observe(model, ["1"])
    assert not must_observe(model, ["1.blocks.9"])
    assert [stage[0] for stage in stages(model, "1.blocks.1", "2")] == ["0", "1.blocks.1", "2"]


def test_observing_changes_nothing():
    model, state = Net(), torch.get_rng_state()
    model.norm.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    observed_order(model, INPUTS)
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert (model.training, model.norm.training) == (True, False)
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())


def residual(net, x):
    return x + net.norm(x)


def without_gradients(net, x):
    with torch.no_grad():
        return net.act(x)


def in_half_precision(net, x):
    with torch.autocast("cpu", torch.bfloat16, enabled=True):
        return net.norm(x)


def drops_layers(net, x):
    return net.norm(x) if not net.training or torch.rand(1) < 2 else x


def write_into(net, x):
    x += 1
    return x


BETWEEN = "between 'act' and 'body'"
REFUSED = {
    "a function": (Net(lambda net, x: F.relu(x)), f"calls relu {BETWEEN}"),
    "a function in training only": (
        Net(lambda net, x: F.dropout(x, 0.5, net.training)),
        f"calls dropout {BETWEEN}",
    ),
    "a function that writes": (Net(write_into), f"calls add_ {BETWEEN}"),
    "a number that decides": (Net(drops_layers), "calls rand, lt between 'act' and 'norm'"),
    "without gradients": (Net(without_gradients), "runs 'act' inside torch.no_grad"),
    "another precision": (Net(in_half_precision), "runs 'norm' inside .* autocast"),
    "a skip connection": (Net(residual), "calls add between 'norm' and 'body'"),
    "a function at the end": (
        Net(after=lambda net, x: F.log_softmax(x, -1)),
        "calls log_softmax after 'head'",
    ),
    "two outputs": (
        Net(after=lambda net, x: (x, x)),
        "passes on another tensor after 'head'",
    ),
    "a branch": (Net(lambda net, x: (net.norm(x), net.act(x))[1]), "another tensor between 'norm' and 'act'"),
    "other modules in training": (
        Net(lambda net, x: net.act(x) if net.training else x),
        "other modules run in training than in evaluation",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_whose_modules_do_not_run_one_after_the_other_is_refused(name):
    model, reason = REFUSED[name]
    with pytest.raises(ConfigError, match=f"cannot cut Net into stages: .*{reason}"):
        observed_order(model, INPUTS)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.block = nn.Linear(6, 8), Takes()

    def forward(self, x):
        return self.block(self.fc(x), mask=torch.ones(8), scale=1.0)


class Takes(nn.Linear):
    def __init__(self):
        super().__init__(8, 8)

    def forward(self, x, mask=None, scale=1.0):
        return super().forward(x * mask * scale)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.fc = nn.LSTM(6, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.fc(self.lstm(x)[0])


class Unused(Net):
    def __init__(self):
        super().__init__()
        self.other = nn.Linear(2, 2)


class Alone(nn.Linear):
    """No module runs inside it."""


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Masked(), "'block' also takes mask, and a stage passes on one tensor"),
        (Recurrent(), "'lstm' returns a tuple"),
        (Unused(), "'other.weight' belongs to no module that its forward.. runs"),
        (Alone(6, 2), "cannot cut Alone into stages: no module runs inside it"),
    ],
)
def test_what_a_stage_cannot_pass_on_or_hold_is_refused(model, message):
    with pytest.raises(ConfigError, match=message):
        observed_order(model, INPUTS)


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (
            "blocks.1.fc2",
            "inside 'blocks.1', where forward.. calls gelu between 'blocks.1.fc1' and 'blocks.1.fc2'",
        ),
        ("act", "cannot cut at 'act': it runs 2 times"),
        ("block.1", "unknown layer 'block.1': did you mean 'blocks.1'"),
    ],
)
def test_places_where_no_stage_begins(cut, message):
    with pytest.raises(ConfigError, match=message):
        stages(Net(), cut)


def test_a_module_with_weights_is_not_used_on_both_sides_of_a_cut():
    with pytest.raises(ConfigError, match="'norm' runs before and after the cut at 'blocks.1'"):
        stages(Net(lambda net, x: net.norm(x)), "blocks.1")
    assert stages(Net(lambda net, x: net.norm(x)), "head")[1] == ["head"]
