"""What the networks of the table have in common: sizes, shapes, what they refuse."""

import pytest
import torch

from shoal.errors import ConfigError
from shoal.models.lenet import lenet
from shoal.models.mlp import linear, mlp
from shoal.models.resnet18 import resnet18


def size(net):
    return sum(param.numel() for param in net.parameters())


@pytest.mark.parametrize(
    ("net", "parameters", "tensors"),
    [
        (linear(), 7_850, 2),
        (mlp(), 109_386, 6),
        (lenet(), 51_902, 8),
        (resnet18(), 11_173_962, 62),
    ],
    ids=["linear", "mlp", "lenet", "resnet18"],
)
def test_parameter_counts(net, parameters, tensors):
    assert size(net) == parameters
    assert len(list(net.parameters())) == tensors


@pytest.mark.parametrize("network", [linear, mlp, lenet])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 12, 17)])
def test_small_networks_take_any_picture(network, shape):
    assert network(shape, 7)(torch.zeros(2, *shape)).shape == (2, 7)


def test_mlp_takes_its_widths_from_hidden():
    net = mlp((5,), outputs=2, hidden=(4, 3, 3))
    assert [tuple(net.get_submodule(f"fc{i}").weight.shape) for i in (1, 2, 3, 4)] == [
        (4, 5),
        (3, 4),
        (3, 3),
        (2, 3),
    ]
    assert size(mlp((5,), outputs=2, hidden=())) == size(linear((5,), outputs=2))


@pytest.mark.parametrize("network", [lenet, resnet18])
def test_convolutions_refuse_what_is_no_picture(network):
    with pytest.raises(ConfigError, match=r"channels×height×width.*784"):
        network((784,))
