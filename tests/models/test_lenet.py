"""LeNet: its shapes, and pictures that are too small."""

import pytest

from shoal.errors import ConfigError
from shoal.models.lenet import lenet


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
