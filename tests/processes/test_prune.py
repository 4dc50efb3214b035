"""Pruning by real processes: equal masks, fewer bytes, other numbers of workers; smaller networks without shoal."""

import json
import shutil
import subprocess
import sys

import pytest

from shoal.cli.main import main

PICTURES = "--data synthetic --data.samples 96 --data.shape 1,12,12 --data.classes 3"
TEXT = "--data synthetic --data.task text --data.samples 96 --data.shape 8"
TINY = "--batch-size 16 --threads 1 --device cpu"
MLP = f"{PICTURES} {TINY} --model mlp --model.hidden 12 --epochs 2 --reduction invariant --micro-batch 4"
PRUNE = "--prune magnitude --prune.sparsity 0.75 --prune.every 2 --prune.begin 0.1"
MODELS = {
    "lenet": f"{PICTURES} --model lenet",
    "mlp": f"{PICTURES} --model mlp --model.hidden 16,8",
    "resnet18": f"{PICTURES} --model resnet18 --model.width 4",
    "transformer": f"{TEXT} --model transformer --model.width 16 --model.heads 4 --model.layers 1",
    "own": f"{PICTURES} --model own:net",
}
OWN = """
from torch import nn

def net():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 3)
    )
"""
LOAD = """
import sys
sys.modules["shoal"] = None  # importing it fails
from importlib.util import module_from_spec, spec_from_file_location
import torch
for name in sys.argv[1:]:
    spec = spec_from_file_location("model", f"runs/{name}-pruned/model.py")
    model = module_from_spec(spec)
    spec.loader.exec_module(model)
    net = model.load(f"runs/{name}-pruned/model.safetensors")
    inputs = torch.zeros(2, 8, dtype=torch.long) if name == "transformer" else torch.zeros(2, 1, 12, 12)
    assert net(inputs).isfinite().all(), name
    print(name, sum(param.numel() for param in net.parameters()))
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shoal(capfd, words):
    capfd.readouterr()
    assert main(words.split()) == 0
    return json.loads(capfd.readouterr().out.splitlines()[-1])


def masks_of(folder, rank):
    events = map(json.loads, (folder / f"events.rank{rank}.jsonl").read_text().splitlines())
    return [(event["step"], event["masks_sha256"]) for event in events if event["event"] == "pruned"]


def test_workers_have_equal_masks_send_less_and_resume_as_another_number(here, capfd):
    ddp = f"train --json {MLP} --strategy ddp --workers 2 --launcher processes --checkpoint.every 4"
    dense = shoal(capfd, f"{ddp} --name dense")
    pruned = shoal(capfd, f"{ddp} {PRUNE} --checkpoint.keep 9 --name pruned")
    folder = here / "runs/pruned"
    assert masks_of(folder, 0) == masks_of(folder, 1) != []
    assert masks_of(folder, 0)[-1][1] == pruned["masks_sha256"]
    assert pruned["bytes_sent"] < 0.7 * dense["bytes_sent"]
    # As if the run had been killed after step 4, in the middle of its pruning.
    for path in [*folder.glob("checkpoints/step-00001*"), folder / "checkpoints/step-000008"]:
        shutil.rmtree(path)
    (folder / "model.safetensors").unlink()
    resumed = shoal(capfd, f"train --json --resume {folder} --workers 4")
    assert [masks_of(folder, rank)[-1] for rank in range(4)] == [(6, pruned["masks_sha256"])] * 4
    assert resumed["masks_sha256"] == pruned["masks_sha256"]
    assert resumed["weights_sha256"] == pruned["weights_sha256"]


def test_a_run_of_every_model_is_shrunk_and_loaded_by_a_process_that_cannot_import_shoal(here, capfd):
    (here / "own.py").write_text(OWN)
    sizes = {}
    for name, flags in MODELS.items():
        shoal(capfd, f"train --json {TINY} {flags} --steps 2 --name {name}")
        trust = " --trust-code" if name == "own" else ""
        shrunk = shoal(capfd, f"prune runs/{name} --structured --sparsity 0.5 --json{trust}")
        assert shrunk["pruned"]["num_values"] < 0.9 * shrunk["before"]["num_values"], name
        sizes[name] = shrunk["pruned"]["num_bytes"]
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, *MODELS], capture_output=True, text=True, check=True, timeout=100
    )
    found = dict(line.split() for line in loaded.stdout.splitlines())
    assert found.keys() == MODELS.keys()
    # Buffers of batch norm have no place among the parameters.
    assert all(4 * int(found[name]) <= sizes[name] for name in MODELS), (found, sizes)
