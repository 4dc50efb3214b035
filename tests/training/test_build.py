"""What cannot be trained is refused in one sentence, by all workers, before anything is written."""

import subprocess
import sys
from typing import get_args

import pytest

from shoal.cli.main import main
from shoal.config.choices import by_name
from shoal.config.sections.sync import SyncConfig
from shoal.training.build import SYNCS

NETS = """
import torch
from torch import nn

class Bare(nn.Module):
    def forward(self, inputs):
        return inputs.flatten(1)[:, :3]

class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.only = nn.Linear(16, 3).requires_grad_(False)

    def forward(self, inputs):
        return self.only(inputs.flatten(1))

class WithBuffer(nn.Linear):
    def __init__(self, dtype):
        super().__init__(16, 3)
        self.register_buffer("table", torch.zeros(2, dtype=getattr(torch, dtype)))

    def forward(self, inputs):
        return super().forward(inputs.flatten(1))

class WithExtra(WithBuffer):
    def get_extra_state(self):
        return {"calls": 1}

    def set_extra_state(self, state):
        pass
"""
FLAGS = "--data synthetic --data.shape 1,4,4 --data.classes 3 --epochs 1 --threads 1 --device cpu"
WAYS = [
    "",
    "--strategy naive --workers 2 --launcher threads",
    "--strategy ddp --workers 2 --launcher threads",
    "--strategy dp --workers 2 --launcher threads",
    "--strategy dp --workers 2",
]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "untrainable.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys, here, *words):
    """What is said; nothing has been written."""
    assert main(["train", *" ".join([FLAGS, *words]).split()]) == 2
    assert not (here / "runs").exists()
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said


def test_every_sync_of_the_settings_can_be_built():
    assert by_name(get_args(SyncConfig)).keys() == SYNCS.keys()


@pytest.mark.parametrize("way", WAYS)
def test_a_model_without_parameters(capsys, here, way):
    said = refused(capsys, here, "--model untrainable:Bare", way)
    assert "model untrainable:Bare has no parameters: there is nothing to train" in said


@pytest.mark.parametrize("way", WAYS[:-1])
def test_a_model_whose_parameters_are_all_frozen(capsys, here, way):
    said = refused(capsys, here, "--model untrainable:Frozen", way)
    assert "model untrainable:Frozen has only frozen parameters" in said


@pytest.mark.parametrize(
    ("net", "what"),
    [
        ("WithBuffer --model.dtype complex128", "'table' in complex128"),
        ("WithExtra --model.dtype float32", "'_extra_state' of type dict"),
    ],
)
def test_a_model_that_checkpoints_cannot_hold(capsys, here, net, what):
    said = refused(capsys, here, f"--model untrainable:{net}")
    assert f"has {what}, which checkpoints in the safetensors format cannot hold" in said


@pytest.mark.parametrize("strategy", ["naive", "ddp", "dp"])
def test_more_workers_than_samples(capsys, here, strategy):
    flags = f"--model mlp --data.samples 3 --strategy {strategy} --workers 4 --launcher threads"
    said = refused(capsys, here, flags)
    assert "4 workers cannot share 3 samples" in said
    assert "at most 3 workers" in said


def test_as_many_workers_as_samples_is_enough(here, capsys):
    flags = f"{FLAGS} --model mlp --data.samples 3 --strategy dp --workers 3 --launcher threads --quiet"
    assert main(["train", *flags.split()]) == 0


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            "--strategy dp --strategy.bucket_mib 3",
            "sync 'dp' has no setting 'bucket_mib': it belongs to ddp",
        ),
        (
            "--strategy ddp --aggregate parameters",
            "sync 'ddp' has no setting 'aggregate': it belongs to naive",
        ),
    ],
)
def test_a_setting_that_does_not_belong_to_the_strategy(capsys, here, flags, sentence):
    assert sentence in refused(capsys, here, "--model mlp", flags)


def test_a_fault_is_put_on_workers_under_every_strategy(capsys, here):
    for strategy in ("naive", "ddp", "dp"):
        flags = f"--strategy {strategy} --workers 3 --launcher threads --fault rank=1,gradient=nan,step=2"
        assert main(["train", *f"{FLAGS} --model mlp {flags} --quiet".split()]) == 2
        said = capsys.readouterr().err
        assert "rank 1's gradient is nan" in said, strategy
        assert "rank 2's" not in said


@pytest.mark.parametrize(
    ("exchange", "refused"),
    [
        ("compressed:topk --exchange.layers fc9.*=int8", "no parameter matches 'fc9.*'"),
        ("compressed:topk --exchange.layers fc1.*=int8", ""),
    ],
)
def test_a_rule_of_a_codec_matches_some_parameter(tmp_path, capsys, exchange, refused):
    flags = f"{FLAGS} --model mlp --steps 1 --strategy ddp --workers 2 --launcher threads --name rules"
    code = main(["train", *flags.split(), "--exchange", *exchange.split()])
    assert code == (2 if refused else 0)
    assert refused in capsys.readouterr().err
    assert (tmp_path / "runs/rules").exists() is not bool(refused)


FOLDERS = ("ddp", "local", "onecopy", "pipeline", "rpc", "server", "tensor", "zero")


@pytest.mark.parametrize(("strategy", "folders"), [("ddp", {"ddp"}), ("zero", {"zero"})])
def test_a_run_imports_its_own_strategy_alone(tmp_path, strategy, folders):
    command = "import sys; from shoal.cli.main import main; main(sys.argv[1:]); print(*sys.modules)"
    words = f"train {FLAGS} --model linear --strategy {strategy} --workers 2 --launcher threads --quiet"
    done = subprocess.run(
        [sys.executable, "-c", command, *words.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    modules = [
        name.split(".") for name in done.stdout.splitlines()[-1].split() if "shoal.strategies." in name
    ]
    algorithms = {
        folder for _, _, folder, *rest in modules if rest and rest[0] != "settings" and folder in FOLDERS
    }
    assert algorithms == folders
