"""The example programs in real processes: by torchrun and by `shoal launch` they print what one process prints."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from launching import environment, workers_of

from shoal.cli.main import main

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


def launched(num_workers, words, capfd):
    assert main(["launch", "--workers", num_workers, *words]) == 0
    return capfd.readouterr().out.splitlines()


def alone(words, monkeypatch, capfd):
    monkeypatch.setattr(sys, "argv", words)
    runpy.run_path(words[0], run_name="__main__")
    return capfd.readouterr().out.splitlines()


def test_cifar10_by_torchrun(tmp_path, monkeypatch, capfd):
    expected = alone(CIFAR, monkeypatch, capfd)
    assert len(expected) == 2
    assert output([*TORCHRUN, *CIFAR], tmp_path) == expected


@pytest.mark.long
def test_mnist_by_torchs_old_launcher(tmp_path, monkeypatch, capfd):
    launch = [sys.executable, "-m", "torch.distributed.launch", "--standalone", "--nproc_per_node=2"]
    assert output([*launch, *MNIST], tmp_path) == alone(MNIST, monkeypatch, capfd)


@pytest.mark.usefixtures("launching_here")
def test_mnist_by_shoal_launch(monkeypatch, capfd):
    expected = alone(MNIST, monkeypatch, capfd)
    assert len(expected) == 2
    assert launched("2", MNIST, capfd) == expected


def test_rpc_by_itself(tmp_path):
    said = output([sys.executable, str(EXAMPLES / "rpc_lenet.py"), "3"], tmp_path)
    assert [line.partition(":")[0] for line in said] == ["step 1", "step 2", "step 3"]


@pytest.mark.usefixtures("launching_here")
@pytest.mark.parametrize("name", ["one_copy", "zero", "zero_meta"])
def test_a_loop_of_the_users_own_by_shoal_launch(monkeypatch, capfd, name):
    program = [str(EXAMPLES / f"{name}.py")]
    (expected,) = alone(program, monkeypatch, capfd)
    (said,) = launched("2", program, capfd)
    assert said == expected.replace("1 workers", "2 workers")


@pytest.mark.usefixtures("launching_here")
def test_a_parameter_server_by_shoal_launch(capfd):
    (said,) = launched("3", [str(EXAMPLES / "parameter_server.py")], capfd)
    loss = re.fullmatch(r"loss (\d\.\d+) after 20 updates by 2 workers", said)
    assert loss is not None, said
    assert float(loss[1]) < 1.39, "four classes: chance is 1.39"


@pytest.mark.usefixtures("launching_here")
def test_tensor_parallel_by_shoal_launch(monkeypatch, capfd):
    program = [str(EXAMPLES / "tensor_parallel.py")]
    expected = alone(program, monkeypatch, capfd)
    assert len(expected) == 5
    assert launched("2", program, capfd) == expected
