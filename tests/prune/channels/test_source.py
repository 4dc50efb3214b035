"""The program of a network computes the same in a process that cannot import shoal."""

import copy
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from shrinking import networks
from torch import nn

from shoal.config.sections.prune import ChannelsConfig
from shoal.errors import ConfigError
from shoal.prune.channels.choose import choose_channels
from shoal.prune.channels.shrink import shrink
from shoal.prune.channels.source import source_of

CHECK = """
import sys
sys.modules["shoal"] = None  # importing it fails
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
import torch
from safetensors.torch import load_file, save_file

for folder in sorted(Path(sys.argv[1]).iterdir()):
    spec = spec_from_file_location("model", folder / "model.py")
    model = module_from_spec(spec)
    spec.loader.exec_module(model)
    inputs = load_file(folder / "inputs.safetensors")["inputs"]
    with torch.no_grad():
        save_file({"outputs": model.load(str(folder / "model.safetensors"))(inputs)}, folder / "outputs.safetensors")
"""


def test_every_network_loads_without_shoal(tmp_path):
    expected = {}
    for name, (model, inputs) in networks().items():
        model = copy.deepcopy(model)
        shrink(model, choose_channels(model, ChannelsConfig(sparsity=0.5)), inputs)
        folder = tmp_path / name
        folder.mkdir()
        (folder / "model.py").write_text(source_of(model, f"{name}.", inputs))
        save_file(model.state_dict(), folder / "model.safetensors")
        save_file({"inputs": inputs}, folder / "inputs.safetensors")
        with torch.no_grad():
            expected[name] = model.eval()(inputs)
    subprocess.run([sys.executable, "-c", CHECK, str(tmp_path)], check=True, cwd=tmp_path, timeout=100)
    for name, outputs in expected.items():
        found = load_file(tmp_path / name / "outputs.safetensors")["outputs"]
        assert torch.allclose(found, outputs, rtol=1e-5), name


def test_a_layer_that_is_not_torchs_is_named():
    class Mine(nn.Module):
        def forward(self, x):
            return x

    with pytest.raises(ConfigError, match="cannot write 1 as a program: Mine is not a layer of torch.nn"):
        source_of(nn.Sequential(nn.Linear(2, 2), Mine()), "Mine.", torch.zeros(1, 2))
