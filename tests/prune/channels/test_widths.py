"""`model.json` and the network that it rebuilds."""

import json

import pytest
import torch
from torch import nn

from shoal.config.schema import RunConfig
from shoal.config.sections.model import MlpConfig
from shoal.config.sections.prune import ChannelsConfig
from shoal.config.sections.values import Custom
from shoal.errors import CheckpointError, ConfigError
from shoal.models.mlp import mlp
from shoal.prune.channels.choose import choose_channels
from shoal.prune.channels.shrink import shrink
from shoal.prune.channels.widths import ModelDescription, rebuild


def test_a_network_is_rebuilt_from_its_description(tmp_path):
    config = RunConfig(model=MlpConfig(hidden=(8, 6)))
    model = mlp((1, 4, 4), 3, hidden=(8, 6))
    sample = torch.randn(2, 1, 4, 4)
    widths = shrink(model, choose_channels(model, ChannelsConfig(sparsity=0.5)), sample)
    path = tmp_path / "model.json"
    path.write_text(ModelDescription.of(config, (1, 4, 4), 3, widths).to_json())
    again = rebuild(path)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(sample), model(sample))
    assert [layer.out_features for layer in again if isinstance(layer, nn.Linear)] == [4, 3, 3]


def test_a_description_runs_no_code_without_consent(tmp_path):
    config = RunConfig(model=Custom(name="torch.nn:Identity"))
    path = tmp_path / "model.json"
    path.write_text(ModelDescription.of(config, (4,), 3, {}).to_json())
    with pytest.raises(ConfigError, match="files run no code without consent"):
        rebuild(path)
    assert isinstance(rebuild(path, trust_code=True), nn.Identity)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 9},
        {"widths": {"fc1": {"out_features": 0}}},
        {"widths": {"fc1": {"forward": 3}}},
        {"widths": {"nowhere": {"out_features": 3}}},
        {"widths": 3},
        {"outputs": None},
    ],
)
def test_a_damaged_description_is_an_error(tmp_path, change):
    path = tmp_path / "model.json"
    described = json.loads(ModelDescription.of(RunConfig(model=MlpConfig()), (4,), 3, {}).to_json())
    path.write_text(json.dumps(described | change))
    with pytest.raises(CheckpointError):
        rebuild(path)
