"""Runs with state in 8 bits, the step inside backward and parameters in bfloat16: their bits, and how they resume."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from shoal.cli.main import main
from shoal.events.folder import RunFolder
from shoal.training import checkpoint

RUN = (
    "--data synthetic --data.samples 96 --data.shape 1,16,16 --data.classes 3 --model mlp --model.hidden 40 "
)
RUN += (
    "--batch-size 32 --epochs 2 --threads 1 --device cpu --launcher threads --optimizer.fast false --seed 3"
)
IN_8_BITS, IN_BACKWARD, IN_BF16 = (
    "--memory.state_bits 8",
    "--memory.step_in_backward",
    "--memory.parameters bf16",
)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def train(capsys):
    """The weights' sha256 of `shoal train`, which must succeed."""

    def run(*words):
        assert main(["train", "--json", *" ".join(words).split()]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out.splitlines()[-1])["weights_sha256"]

    return run


@pytest.mark.parametrize("also", ["", IN_8_BITS, f"{IN_BF16} {IN_8_BITS}"])
@pytest.mark.parametrize("strategy", ["single", "ddp --workers 3"])
def test_step_in_backward_has_the_bits_of_a_step_after_it(train, strategy, also):
    run = f"{RUN} --strategy {strategy} {also}"
    assert train(run, IN_BACKWARD, "--name inside") == train(run, "--name after")


@pytest.mark.parametrize("technique", [IN_8_BITS, f"{IN_BF16} {IN_8_BITS}"])
@pytest.mark.parametrize("stage", [1, 2])
def test_divided_state_has_the_bits_of_whole_state(train, technique, stage):
    """Blocks and random numbers follow from an element's place in the whole parameter."""
    run = f"{RUN} {technique} --workers 3"
    divided = train(run, f"--strategy zero --strategy.stage {stage} --name divided")
    assert divided == train(run, "--strategy ddp --name whole")


@pytest.mark.parametrize(
    "strategy",
    [
        "naive --workers 2",
        "onecopy --workers 2",
        "zero --strategy.stage 3 --workers 2",
        "pipeline --workers 2",
    ],
)
def test_eight_bits_under_other_strategies(train, strategy):
    """Up to the order of sums these make single's updates."""
    train(RUN, IN_8_BITS, "--strategy single --name single")
    train(RUN, IN_8_BITS, f"--strategy {strategy} --name other")
    ours, other = (load_file(f"runs/{name}/model.safetensors") for name in ("single", "other"))
    for name, weights in ours.items():
        assert (other[name] - weights).abs().max() < 1e-3


@pytest.mark.parametrize("technique", [IN_8_BITS, IN_BF16, f"{IN_BF16} {IN_8_BITS} {IN_BACKWARD}"])
@pytest.mark.parametrize("optimizer", ["adam", "sgd --momentum 0.9"])
def test_resumed_run_has_the_bits_of_one_that_was_not_stopped(train, technique, optimizer):
    run = f"{RUN} {technique}".replace("--optimizer.fast", f"--optimizer {optimizer} --optimizer.fast")
    whole = train(run, "--name whole")
    train(run, "--steps 4 --name stopped")
    assert train("--resume runs/stopped --steps 6") == whole


def saved(name):
    return checkpoint.latest(RunFolder(Path("runs") / name).checkpoints).pieces()


def test_checkpoint_is_that_of_any_run_and_storage_may_change(train):
    """From float32 to 8 bits under zero, to bf16, and back to float32 alone."""
    train(RUN, "--steps 2 --name legs")
    before = {name: (piece.shape, piece.dtype) for name, piece in saved("legs").items()}
    train("--resume runs/legs --steps 3", IN_8_BITS, "--strategy zero --workers 2")
    after = saved("legs")
    assert {name: (after[name].shape, after[name].dtype) for name in before} == before
    assert {value.item() for name, value in after.items() if name.endswith(".step")} == {3.0}
    train("--resume runs/legs --steps 4 --memory.state_bits 32 --strategy single --workers 1", IN_BF16)
    assert saved("legs")["model.fc1.weight"].dtype == torch.bfloat16
    train("--resume runs/legs --steps 6 --memory.parameters float32")
    assert saved("legs")["model.fc1.weight"].dtype == torch.float32


@pytest.mark.parametrize(
    "model",
    [
        "lenet --data.shape 1,16,16 --data.classes 3",
        "resnet18 --model.width 8 --data.shape 1,16,16 --data.classes 3",
        "transformer --data.task text --data.shape 12",
    ],
)
def test_bf16_parameters_of_other_models(train, model):
    data = "--data synthetic --data.samples 16 --batch-size 8 --epochs 1 --threads 1 --device cpu"
    train(f"{data} --model {model} {IN_BF16} --name net")
    dtypes = {tensor.dtype for tensor in load_file("runs/net/model.safetensors").values()}
    assert {torch.bfloat16, torch.float32} <= dtypes
    assert main(["evaluate", "runs/net", "--device", "cpu"]) == 0
