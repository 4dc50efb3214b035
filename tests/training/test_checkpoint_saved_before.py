"""Runs that earlier versions saved can still be continued."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from shoal.cli.main import main
from shoal.training import checkpoint

RUNS = Path(__file__).parent / "saved_before" / "runs-0.1.0.tar.xz"
"""A small unfinished run of every strategy (`tools/run_fixtures.py`), and the weights with which it ended."""
with tarfile.open(RUNS) as archive:
    NAMES = [name for name in archive.getnames() if "/" not in name]
SAVED = Path(__file__).parent / "saved_before" / "format-1"
"""Version 0.1.0: rank 0 wrote everything, and the settings have a section [strategy]."""


def test_its_tensors_are_read_as_they_were_written():
    found = checkpoint.latest(SAVED / "checkpoints")
    pieces = found.pieces()
    assert found.progress.step == 4
    written = load_file(found.path / "rank0.safetensors")
    assert pieces.keys() == written.keys()
    assert all(pieces[name].equal(tensor) for name, tensor in written.items())


@pytest.mark.parametrize("strategy", ["single 1", "ddp 2", "dp 3", "naive 8"])
def test_it_continues_under_every_strategy(tmp_path, monkeypatch, capsys, strategy):
    name, workers = strategy.split()
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SAVED, "runs/format-1")
    flags = f"--strategy {name} --workers {workers} --launcher threads --steps 6 --device cpu --json"
    assert main(["train", "--resume", "runs/format-1", *flags.split()]) == 0, capsys.readouterr().err
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["steps"], result["strategy"], result["workers"]) == (6, name, int(workers))
    written = Path("runs/format-1/config.toml").read_text()
    assert "[sync]" in written
    assert "[strategy]" not in written


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    with tarfile.open(RUNS) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_every_strategy_resumes_to_the_same_weights(unpacked, tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    run = unpacked / name
    expected = load_file(run / "expected.safetensors")
    assert main(["train", "--resume", str(run), "--quiet"]) == 0, capsys.readouterr().err
    found = load_file(run / "model.safetensors")
    assert found.keys() == expected.keys()
    for key, weights in found.items():
        torch.testing.assert_close(weights, expected[key], rtol=1e-4, atol=1e-6)
    assert main(["evaluate", str(run)]) == 0, capsys.readouterr().err
