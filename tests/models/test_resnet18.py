"""ResNet-18: small pictures, and group norm against batch norm."""

import pytest
import torch

from shoal.models.initialise import initialise
from shoal.models.resnet18 import resnet18


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
        net = resnet18((3, 16, 16), width=4, norm=norm)
        initialise(net, seed=0)
        with torch.no_grad():
            difference[norm] = (net(pictures)[:2] - net(pictures[:2])).abs().max().item()
    assert difference["group"] < 1e-5 < difference["batch"]
