import pytest
import torch
from tests.autograd.networks import batch, lenet, mlp
from torch import nn as torch_nn

from shoal.autograd import Tape, nn, no_record
from shoal.errors import AutogradError


@pytest.mark.parametrize("build", [mlp, lenet])
def test_a_lowered_module_has_the_same_names_memory_and_outputs(build):
    module = build()
    layer = nn.from_torch(module)
    theirs = dict(module.named_parameters())
    ours = dict(layer.named_parameters())
    assert list(ours) == list(theirs)
    for name, parameter in ours.items():
        assert parameter.value.data_ptr() == theirs[name].data_ptr()
        assert not parameter.value.requires_grad
        assert type(parameter.value) is torch.Tensor
    inputs, _ = batch(3)
    with no_record():
        torch.testing.assert_close(layer(inputs).value, module(inputs).detach(), rtol=1e-12, atol=1e-12)


def test_an_optimizer_step_on_our_tensors_moves_the_module():
    module = mlp(widths=(784, 10))
    layer = nn.from_torch(module)
    optimizer = torch.optim.SGD([p.value for p in nn.parameters(layer)], lr=1.0)
    before = module.fc1.bias.detach().clone()
    for parameter in nn.parameters(layer):
        parameter.value.grad = torch.ones_like(parameter.value)
    optimizer.step()
    assert torch.equal(module.fc1.bias.detach(), before - 1.0)


def test_nested_sequentials_activations_and_layers_without_bias():
    module = torch_nn.Sequential(
        torch_nn.Sequential(torch_nn.Linear(4, 5, bias=False), torch_nn.Tanh()),
        torch_nn.Linear(5, 2),
        torch_nn.Sigmoid(),
    )
    layer = nn.from_torch(module)
    assert [name for name, _ in layer.named_parameters()] == ["0.0.weight", "1.weight", "1.bias"]
    x = torch.ones(3, 4)
    with no_record():
        assert torch.allclose(layer(x).value, module(x).detach())


def test_a_shared_parameter_is_one_variable():
    shared = torch_nn.Linear(3, 3)
    layer = nn.from_torch(torch_nn.Sequential(shared, torch_nn.ReLU(), torch_nn.Sequential(shared)))
    assert len(nn.parameters(layer)) == 2


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (torch_nn.Sequential(torch_nn.Linear(2, 2), torch_nn.Dropout()), r"Dropout \(1\) is not supported"),
        (torch_nn.LSTM(2, 2), "LSTM is not supported"),
        (torch_nn.Conv2d(2, 2, 3, groups=2), "Conv2d has groups=2"),
        (torch_nn.Conv2d(2, 2, 3, padding="same"), "Conv2d pads with 'zeros' by 'same'"),
        (torch_nn.Flatten(0), "Flatten flattens axes 0 to -1"),
        (torch_nn.MaxPool2d(2, ceil_mode=True), "MaxPool2d has dilation, ceil_mode"),
    ],
)
def test_what_cannot_be_lowered_is_named(module, sentence):
    with pytest.raises(AutogradError, match=sentence):
        nn.from_torch(module)


def test_a_batch_of_the_wrong_width_names_the_shapes_and_the_line():
    layer = nn.from_torch(torch_nn.Linear(4, 2))
    with (
        Tape(),
        pytest.raises(AutogradError, match=r"matmul cannot take shapes \(3, 5\) and \(2, 4\).*at test_nn.py"),
    ):
        layer(nn.Variable(torch.ones(3, 5)))
