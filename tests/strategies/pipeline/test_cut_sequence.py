"""The order of a model's layers: their composition is the model."""

import pytest
import torch
from torch import nn

from shoal.errors import ConfigError
from shoal.models.lenet import lenet
from shoal.models.resnet18 import resnet18
from shoal.models.transformer import transformer
from shoal.strategies.pipeline.cut import check_order, layers_of

PICTURES = torch.linspace(-1, 1, 2 * 3 * 16 * 16).view(2, 3, 16, 16)
TEXT = torch.arange(2 * 16).view(2, 16)


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (lenet((3, 16, 16)), PICTURES),
        (resnet18((3, 16, 16), width=4), PICTURES),
        (transformer((16,), width=8, heads=2), TEXT),
        (transformer((16,), width=8, heads=2), TEXT[:, :9]),
    ],
    ids=["lenet", "resnet18", "transformer", "shorter texts"],
)
def test_applying_the_layers_in_order_is_the_forward_pass(model, inputs):
    x = inputs
    for _, layer in layers_of(model.eval()):
        x = layer(x)
    assert torch.equal(x, model(inputs))
    own = {
        id(tensor) for _, layer in layers_of(model) for tensor in layer.state_dict(keep_vars=True).values()
    }
    assert {id(tensor) for tensor in model.state_dict(keep_vars=True).values()} == own


def test_a_layer_that_is_used_twice_is_two_layers():
    shared = nn.ReLU()
    model = nn.Sequential(nn.Linear(2, 2), shared, nn.Sequential(nn.Linear(2, 2), shared))
    assert [name for name, _ in layers_of(model)] == ["0", "1", "2.0", "2.1"]


class Doubled(nn.Sequential):
    def forward(self, x):
        return super().forward(x) + x


def test_a_sequence_with_a_forward_of_its_own_is_one_layer():
    model = nn.Sequential(nn.Linear(2, 2), Doubled(nn.Linear(2, 2), nn.ReLU()))
    assert [name for name, _ in layers_of(model)] == ["0", "1"]


def test_a_sequence_with_hooks_is_one_layer():
    inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    inner.register_forward_hook(lambda module, inputs, output: 2 * output)
    assert [name for name, _ in layers_of(nn.Sequential(nn.Flatten(), inner))] == ["0", "1"]


def test_a_model_of_unknown_order_is_refused():
    with pytest.raises(ConfigError, match=r"cannot cut Bilinear into stages.*\n.*as_sequence"):
        layers_of(nn.Bilinear(2, 2, 2))


class Wrong(nn.Module):
    def as_sequence(self):
        return [nn.Linear(2, 2)]


def test_a_wrong_declaration_is_refused():
    with pytest.raises(ConfigError, match="Wrong.as_sequence.. returned Linear entries"):
        layers_of(Wrong())


class Declared(nn.Module):
    """A model whose declared order may leave out what its forward pass does."""

    def __init__(self, between=lambda x: x, skips=False, after=lambda x: x):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.between, self.skips, self.after = between, skips, after

    def forward(self, x):
        y = self.b(self.between(self.a(x)))
        return self.after(x + y if self.skips else y)

    def as_sequence(self):
        return [("a", self.a), ("b", self.b)]


def stages_of(model):
    return [[layer] for layer in layers_of(model)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"between": torch.relu}, "the input of 'b' is not the output of 'a'"),
        ({"skips": True}, "the result is not the output of 'b'"),
        ({"after": lambda x: x.sum(1)}, "the result is not the output of 'b'"),
    ],
    ids=["a function between", "a skip connection", "another shape"],
)
def test_an_order_that_is_not_the_forward_pass_is_refused(options, message):
    model = Declared(**options)
    with pytest.raises(ConfigError, match=message):
        check_order(model, stages_of(model), torch.linspace(-1, 1, 8).view(2, 4))
    assert model.training


def test_an_output_that_is_not_one_tensor_is_refused_where_a_stage_ends():
    class Pair(nn.Linear):
        def forward(self, x):
            return super().forward(x), x

    class Add(nn.Linear):
        def forward(self, pair):
            return super().forward(pair[0] + pair[1])

    model = nn.Sequential(Pair(4, 4), Add(4, 4), nn.Linear(4, 2))
    first, second, third = layers_of(model)
    with pytest.raises(ConfigError, match="cannot cut after '0': its output is a tuple, expected one tensor"):
        check_order(model, [[first], [second, third]], torch.ones(2, 4))
    check_order(model, [[first, second], [third]], torch.ones(2, 4))


def test_an_order_that_is_the_forward_pass_is_accepted():
    shared = nn.Linear(4, 4)
    twice = nn.Sequential(shared, nn.ReLU(inplace=True), nn.Dropout(0.5), shared)
    for model, inputs in (
        (Declared(), torch.ones(2, 4)),
        (twice, torch.ones(2, 4)),
        (transformer((16,), width=8, heads=2), TEXT),
    ):
        check_order(model, stages_of(model), inputs)
