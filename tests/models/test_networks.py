"""The networks themselves: shapes, sizes, and what they refuse."""

import pytest
import torch

from shoal.errors import ConfigError
from shoal.models.initialise import initialise
from shoal.models.lenet import lenet
from shoal.models.linear import linear
from shoal.models.mlp import mlp
from shoal.models.resnet18 import resnet18
from shoal.models.transformer import transformer


def seeded(net):
    initialise(net, seed=0)
    return net


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


def test_lenet_has_the_shapes_of_the_course():
    net = lenet()
    shapes = {name: tuple(param.shape) for name, param in net.named_parameters() if name.endswith("weight")}
    assert shapes == {
        "conv1.weight": (6, 1, 5, 5),
        "conv2.weight": (16, 6, 5, 5),
        "fc1.weight": (120, 400),
        "fc2.weight": (10, 120),
    }


@pytest.mark.parametrize("shape", [(1, 11, 28), (1, 28, 11), (3, 8, 8)])
def test_lenet_refuses_pictures_that_pool_away(shape):
    with pytest.raises(ConfigError, match=f"{shape[1]}×{shape[2]} picture.*12×12"):
        lenet(shape)


@pytest.mark.parametrize("network", [lenet, resnet18])
def test_convolutions_refuse_what_is_no_picture(network):
    with pytest.raises(ConfigError, match=r"channels×height×width.*784"):
        network((784,))


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("side", [8, 32])
def test_resnet18_takes_small_pictures(norm, side):
    net = resnet18((3, side, side), outputs=5, width=8, norm=norm)
    assert net(torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0))).shape == (2, 5)


def test_group_norm_looks_at_one_sample_alone():
    """What batch norm cannot promise: a sample's output does not depend on its neighbours."""
    pictures = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    difference = {}
    for norm in ("batch", "group"):
        net = seeded(resnet18((3, 16, 16), width=4, norm=norm))
        with torch.no_grad():
            difference[norm] = (net(pictures)[:2] - net(pictures[:2])).abs().max().item()
    assert difference["group"] < 1e-5 < difference["batch"]


def test_transformer_gives_scores_for_every_position():
    net = transformer((10,), layers=1, width=8, heads=2)
    for dtype in (torch.uint8, torch.int32, torch.int64):
        assert net(torch.zeros(3, 10, dtype=dtype)).shape == (3, 10, 256)
    assert net(torch.zeros(3, 4, dtype=torch.uint8)).shape == (3, 4, 256)


def test_transformer_never_looks_ahead():
    net = seeded(transformer((12,), layers=2, width=16, heads=4)).double()
    text = torch.randint(0, 256, (1, 12), generator=torch.Generator().manual_seed(0))
    for changed in range(12):
        other = text.clone()
        other[0, changed] = (other[0, changed] + 1) % 256
        with torch.no_grad():
            moved = (net(other) - net(text)).abs().amax(dim=-1)[0]
        assert (moved[:changed] == 0).all()
        assert (moved[changed:] > 0).all()


def test_transformer_knows_where_a_byte_stands():
    net = seeded(transformer((6,), layers=1, width=16, heads=2))
    with torch.no_grad():
        scores = net(torch.full((1, 6), 65))[0]
    assert not torch.allclose(scores[0], scores[5])


def test_transformer_refuses_heads_that_do_not_divide_the_width():
    with pytest.raises(ConfigError, match=r"width \(10\).*heads \(4\)[\s\S]*1, 2, 5, 10"):
        transformer((8,), width=10, heads=4)


def test_transformer_refuses_pictures():
    with pytest.raises(ConfigError, match=r"reads bytes.*1×28×28[\s\S]*--data.task text"):
        transformer((1, 28, 28))
