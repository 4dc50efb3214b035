"""`shoal prune`: what a user sees, what is written, and what is refused before anything is."""

import json
import subprocess
import sys
import tomllib

import pytest
import torch
from safetensors.torch import load_file

from shoal.cli.main import main
from shoal.prune.channels.widths import rebuild

COMMON = "--batch-size 32 --epochs 1 --threads 1 --device cpu --name base --quiet"
PICTURES = "--data synthetic --data.samples 32 --data.shape 1,12,12 --data.classes 3"
TEXT = "--data synthetic --data.task text --data.samples 32 --data.shape 8"
MODELS = {
    "lenet": f"{PICTURES} --model lenet",
    "mlp": f"{PICTURES} --model mlp --model.hidden 16,8",
    "resnet18": f"{PICTURES} --model resnet18 --model.width 4",
    "transformer": f"{TEXT} --model transformer --model.width 16 --model.heads 4 --model.layers 1",
    "own:net": f"{PICTURES} --model own:net",
}
OWN = """
from torch import nn

def net():
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(200, 10), nn.Tanh(), nn.Linear(10, 3))

class Skip(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(144, 8), nn.ReLU(), nn.Linear(8, 3))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.net(x) + self.head(self.net[:2](x))
"""
LOAD = """
import sys
sys.modules["shoal"] = None  # importing it fails
sys.path.insert(0, "runs/base-pruned")
import model, torch
net = model.load("runs/base-pruned/model.safetensors")
print(sum(param.numel() for param in net.parameters()))
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def trained(capsys, flags):
    assert main(["train", *flags.split(), *COMMON.split()]) == 0
    capsys.readouterr()


def prune(capsys, flags):
    assert main(["prune", "runs/base", "--json", *flags.split()]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_pruned_and_shrunk(here, capsys, name):
    trained(capsys, MODELS[name])
    consent = " --trust-code" if ":" in name else ""
    shrunk = prune(capsys, f"--structured --sparsity 0.5{consent}")
    assert shrunk["pruned"]["num_values"] < 0.9 * shrunk["before"]["num_values"]
    assert bool(shrunk["cannot_shrink"]) == (name == "transformer")
    folder = here / "runs/base-pruned"
    weights = load_file(folder / "model.safetensors")
    assert sum(tensor.nbytes for tensor in weights.values()) == shrunk["pruned"]["num_bytes"]
    rebuilt = rebuild(folder / "model.json", trust_code=True)
    rebuilt.load_state_dict(weights)
    # The run folder is like any other: it is evaluated, also by its weights alone, and pruned again.
    assert main(["evaluate", "runs/base-pruned", "--json", *consent.split()]) == 0
    assert json.loads(capsys.readouterr().out)["loss"] == pytest.approx(
        shrunk["fine_tuned"]["loss"], rel=1e-5
    )
    sparse = prune(capsys, f"--sparsity 0.8 --name sparse{consent}")
    masks, weights = (load_file(here / f"runs/sparse/{each}.safetensors") for each in ("masks", "model"))
    assert all((weights[each][~kept] == 0).all() for each, kept in masks.items())
    assert sum(int(kept.sum()) for kept in masks.values()) == pytest.approx(
        0.2 * sum(kept.numel() for kept in masks.values()), abs=1
    )
    assert sparse["pruned"]["num_bytes"] < 0.6 * sparse["before"]["num_bytes"]
    if name == "own:net":
        loaded = subprocess.run(
            [sys.executable, "-c", LOAD], capture_output=True, text=True, check=True, timeout=100
        )
        assert int(loaded.stdout) == sum(param.numel() for param in rebuilt.parameters())


def test_a_person_reads_a_table_and_a_shrunk_run_is_pruned_again(here, capsys):
    trained(capsys, MODELS["mlp"])
    assert main(["prune", "runs/base", "--structured", "--finetune", "2"]) == 0
    out = capsys.readouterr().out
    assert "fine-tuned, epochs: 2" in out
    assert "run folder: runs/base-pruned" in out
    assert main(["prune", "runs/base-pruned", "--structured", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["run"] == "runs/base-pruned-pruned"
    model = rebuild(here / "runs/base-pruned-pruned/model.json")
    assert [layer.out_features for layer in model if isinstance(layer, torch.nn.Linear)] == [4, 2, 3]
    # A shrunk run that was stopped is resumed with its widths.
    assert main(["train", "--resume", "runs/base-pruned-pruned", "--epochs", "2", "--quiet"]) == 0


def test_fine_tuning_by_several_workers_gives_the_same_masks(here, capsys):
    trained(capsys, MODELS["mlp"])
    one = prune(capsys, "--sparsity 0.7 --name one --schedule constant")
    two = prune(capsys, "--sparsity 0.7 --name two --strategy ddp --workers 2 --launcher threads")
    assert one["masks_sha256"] == two["masks_sha256"]
    schedules = (here / f"runs/{name}/config.toml" for name in ("one", "two"))
    rates = [tomllib.loads(path.read_text())["schedule"]["name"] for path in schedules]
    assert rates == ["constant", "cosine"], "the rate of the trained run was constant"


def test_a_network_without_channels_begins_with_a_higher_rate_unless_the_user_sets_it(here, capsys):
    trained(capsys, MODELS["mlp"])

    def rate(name, flags):
        prune(capsys, f"{flags} --name {name}")
        return tomllib.loads((here / f"runs/{name}/config.toml").read_text())["optimizer"].get("lr", 1e-3)

    assert rate("channels", "--structured") == pytest.approx(3e-3)
    assert rate("weights", "--sparsity 0.5") == 1e-3
    assert rate("own", "--structured --lr 1e-4") == 1e-4
    assert rate("constant", "--structured --schedule constant") == 1e-3


def test_a_pruned_run_is_pruned_further_and_not_less(here, capsys):
    trained(capsys, MODELS["mlp"])
    first = prune(capsys, "--sparsity 0.6 --name first")
    assert main(["prune", "runs/first", "--sparsity", "0.8", "--name", "second", "--json"]) == 0
    second = json.loads(capsys.readouterr().out)
    assert second["before"]["num_values"] == first["pruned"]["num_values"]


@pytest.mark.parametrize(
    ("start", "flags", "words"),
    [
        ("runs/first", "--sparsity 0.1", "sparsity 0.1 of layers '*' would train"),
        ("runs/first", "--sparsity 0.9 --layers fc3", "of layers 'fc3' would train"),
        (
            "runs/first",
            "--structured",
            "without some channels, the weights that are left would be trained again",
        ),
        ("runs/first/model.safetensors", "--sparsity 0.1", "sparsity 0.1 of layers '*' would train"),
        ("runs/first/checkpoints/last", "--sparsity 0.1", "sparsity 0.1 of layers '*' would train"),
    ],
)
def test_what_is_pruned_is_not_trained_again(here, capsys, start, flags, words):
    trained(capsys, MODELS["mlp"])
    prune(capsys, "--sparsity 0.6 --name first")
    assert main(["prune", start, *flags.split(), "--name", "second"]) == 2
    error = capsys.readouterr().err
    assert f"{start} is pruned to a sparsity of 0.6: " in error
    assert words in error
    assert not (here / "runs/second").exists()


def test_a_run_whose_memory_settings_do_not_support_pruning_is_pruned(here, capsys):
    memory = "--memory.step_in_backward --memory.parameters bf16 --memory.state_bits 8 --optimizer adam"
    trained(capsys, f"{MODELS['mlp']} --model.hidden 64,64 {memory}")
    assert prune(capsys, "--sparsity 0.5")["status"] == "completed"
    settings = tomllib.loads((here / "runs/base-pruned/config.toml").read_text())["memory"]
    assert settings["state_bits"] == 8
    assert not settings.get("step_in_backward")
    assert settings.get("parameters", "float32") == "float32"


def test_a_model_that_needs_all_its_channels_is_refused_and_nothing_is_written(here, capsys):
    own = f"{PICTURES} --model own:Skip"
    message = "the model uses the channels of net.1 in a way that cannot be followed"
    assert main(["train", *own.split(), *COMMON.split(), "--prune", "channels"]) == 2
    assert message in capsys.readouterr().err
    assert not (here / "runs").exists()
    trained(capsys, own)
    assert main(["prune", "runs/base", "--structured", "--trust-code"]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in (here / "runs").iterdir()] == ["base"]


def test_what_is_no_run_is_refused(here, capsys):
    assert main(["prune", "runs/none"]) == 2
    assert "does not exist" in capsys.readouterr().err
    (here / "runs/unfinished").mkdir(parents=True)
    (here / "runs/unfinished/config.toml").write_text('model = "mlp"\n')
    assert main(["prune", "runs/unfinished"]) == 2
    assert "runs/unfinished has no weights: the run did not finish" in capsys.readouterr().err
    assert main(["prune", "own.py"]) == 2
    assert "cannot read weights" in capsys.readouterr().err
