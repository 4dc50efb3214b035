"""The blocks that are found in models."""

import pytest
from activation_cases import made
from torch import nn

from shoal.errors import ConfigError
from shoal.training.memory.checkpointing import blocks_of


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("mlp", ["flatten…relu2", "fc3…fc4"]),
        ("lenet", ["conv1…flatten", "fc1…fc2"]),
        ("resnet18", [f"stage{stage}.{block}" for stage in (1, 2, 3, 4) for block in (0, 1)]),
        ("transformer", ["blocks.0", "blocks.1", "blocks.2"]),
        ("sequential with dropout", ["1", "2", "3"]),
        ("list with dropout", ["layers.0", "layers.1", "layers.2", "layers.3"]),
        ("one activation", ["0…6", "7…9"]),
        ("a layer twice", ["0…3", "4…7"]),
    ],
)
def test_blocks_of_models(model, names):
    assert [block.name for block in blocks_of(made(model)[0])] == names


def test_a_model_without_blocks_is_refused():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

    with pytest.raises(ConfigError, match="finds no blocks in Net"):
        blocks_of(Net())
