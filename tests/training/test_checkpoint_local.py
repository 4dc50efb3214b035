"""Runs under `local` that stop and go on: exactly with as many workers, from the one model with others."""

import errno

import pytest
import torch
from small_runs import NET, newest_pieces, train

from shoal.cli.main import main
from shoal.training import checkpoint

FLAGS = "--data synthetic --data.samples 90 --data.shape 1,4,4 --data.classes 3 --model local_net:Net "
FLAGS += "--validation 0.1 --batch-size 32 --epochs 4 --threads 1 --device cpu --launcher threads --seed 5 "
FLAGS += "--optimizer sgd --momentum 0.9"
STEPS = 12  # four epochs of 32, 32 and 17 samples


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "local_net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        "--strategy.every 5",
        "--strategy.every 4 --strategy.fragments 2 --strategy.overlap 2 --exchange by:ring",
    ],
)
def test_resumed_in_mid_interval_every_bit_is_the_same(capsys, options):
    flags = f"{FLAGS} --strategy local --workers 3 {options}"
    whole = train(capsys, flags, "--name whole")
    train(capsys, flags, "--name cut --steps 7")
    resumed = train(capsys, f"--trust-code --resume runs/cut --steps {STEPS}")
    assert resumed["weights_sha256"] == whole["weights_sha256"]
    assert resumed["final_loss"] == pytest.approx(whole["final_loss"], rel=1e-12)
    assert resumed["validation_loss"] == whole["validation_loss"]
    expected = newest_pieces(whole)
    found = newest_pieces(resumed)
    assert found.keys() == expected.keys()
    assert all(torch.equal(piece, expected[name]) for name, piece in found.items())


def test_averaging_after_every_step_goes_on_as_one_machine_and_back(capsys):
    """With momentum and a shorter last batch, whose shares are not those of the others."""
    whole = train(capsys, FLAGS, "--name whole")
    legs = [
        "local --strategy.every 1 --workers 2",
        "single --workers 1",
        "local --strategy.every 1 --workers 3",
    ]
    for number, leg in enumerate(legs):
        start = f"{FLAGS} --name legs" if number == 0 else "--trust-code --resume runs/legs"
        result = train(capsys, start, f"--strategy {leg} --steps {4 * (number + 1)}")
    expected, found = newest_pieces(whole), newest_pieces(result)
    for name in [name for name in expected if name.startswith(("model.", "optim."))]:
        scale = expected[name].abs().max()
        assert (found[name] - expected[name]).abs().max() / scale <= 1e-12, name
    assert result["final_loss"] == pytest.approx(whole["final_loss"], rel=1e-12)
    assert result["test_loss"] == pytest.approx(whole["test_loss"], rel=1e-12)


def test_the_first_step_is_one_machines_whatever_the_interval(capsys):
    first = {}
    for name, strategy in (("one", "single"), ("many", "local --strategy.every 50 --workers 2")):
        result = train(capsys, FLAGS, f"--steps 1 --strategy {strategy} --name {name}")
        first[name] = result["final_loss"]
    assert first["one"] == pytest.approx(first["many"], rel=1e-12)


def test_a_checkpoint_that_cannot_be_written_ends_all_workers(capsys, tmp_path, monkeypatch):
    train(capsys, f"{FLAGS} --strategy local --strategy.every 50 --workers 2 --steps 2 --name full")
    saved = sorted((tmp_path / "runs/full/checkpoints").iterdir())

    def full(path):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(checkpoint, "make_folder", full)
    assert main(["train", "--trust-code", "--resume", "runs/full", "--steps", "4"]) == 2
    said = capsys.readouterr().err
    assert "cannot save" in said
    assert "The checkpoints before it are untouched" in said
    assert sorted(path for path in saved if path.exists()) == saved
