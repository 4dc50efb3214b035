"""The example programs in real processes: by torchrun and by `shoal launch` they print what one process prints."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from launching import command, environment, workers_of

EXAMPLES = Path(__file__).parents[2] / "examples"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
CIFAR = [str(EXAMPLES / "cifar10_resnet18_ddp.py"), "--synthetic", "64", "--batch-size", "16", "--width", "4"]
CIFAR += ["--steps", "5", "--lr", "0.01", "--float64"]
MNIST = [str(EXAMPLES / "mnist_ddp.py"), "--synthetic", "200", "--batch-size", "20", "--epochs", "2"]


def output(words, tmp_path):
    launcher = subprocess.Popen(
        words, env=environment(), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    said, errors = launcher.communicate(timeout=110)
    assert launcher.returncode == 0, errors
    assert workers_of(launcher.pid) == []
    return said.splitlines()


def alone(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", words)
    runpy.run_path(words[0], run_name="__main__")
    return capsys.readouterr().out.splitlines()


def test_cifar10_by_torchrun(tmp_path, monkeypatch, capsys):
    expected = alone(CIFAR, monkeypatch, capsys)
    assert len(expected) == 2
    assert output([*TORCHRUN, *CIFAR], tmp_path) == expected


@pytest.mark.long
def test_mnist_by_torchs_old_launcher(tmp_path, monkeypatch, capsys):
    launch = [sys.executable, "-m", "torch.distributed.launch", "--standalone", "--nproc_per_node=2"]
    assert output([*launch, *MNIST], tmp_path) == alone(MNIST, monkeypatch, capsys)


def test_mnist_by_shoal_launch(tmp_path, monkeypatch, capsys):
    expected = alone(MNIST, monkeypatch, capsys)
    assert len(expected) == 2
    assert output(command("launch", "--workers", "2", *MNIST), tmp_path) == expected


def test_rpc_by_itself(tmp_path):
    said = output([sys.executable, str(EXAMPLES / "rpc_lenet.py"), "3"], tmp_path)
    assert [line.partition(":")[0] for line in said] == ["step 1", "step 2", "step 3"]


@pytest.mark.parametrize("name", ["one_copy", "zero"])
def test_a_loop_of_the_users_own_by_shoal_launch(tmp_path, monkeypatch, capsys, name):
    program = [str(EXAMPLES / f"{name}.py")]
    (expected,) = alone(program, monkeypatch, capsys)
    (said,) = output(command("launch", "--workers", "2", *program), tmp_path)
    assert said == expected.replace("1 workers", "2 workers")


def test_a_parameter_server_by_shoal_launch(tmp_path):
    program = str(EXAMPLES / "parameter_server.py")
    (said,) = output(command("launch", "--workers", "3", program), tmp_path)
    loss = re.fullmatch(r"loss (\d\.\d+) after 20 updates by 2 workers", said)
    assert loss is not None, said
    assert float(loss[1]) < 1.39, "four classes: chance is 1.39"


def test_tensor_parallel_by_shoal_launch(tmp_path, monkeypatch, capsys):
    program = [str(EXAMPLES / "tensor_parallel.py")]
    expected = alone(program, monkeypatch, capsys)
    assert len(expected) == 5
    assert output(command("launch", "--workers", "2", *program), tmp_path) == expected
