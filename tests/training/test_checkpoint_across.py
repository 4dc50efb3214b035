"""A checkpoint holds one machine's state: a run may go on under any strategy, with any number of workers."""

from pathlib import Path

import pytest
import torch
from small_runs import NET, newest_pieces, train

from shoal.cli.main import main

FLAGS = "--data synthetic --data.samples 90 --data.shape 1,4,4 --data.classes 3 --model across_net:Net "
FLAGS += "--batch-size 32 --epochs 4 --clip-norm 0.3 --threads 1 --device cpu --launcher threads --seed 5"
OPTIMIZERS = {"sgd": "--optimizer sgd --lr 0.1 --momentum 0.9", "adamw": "--optimizer adamw --lr 0.01"}
STEPS = 12  # four epochs of 32, 32 and 26 samples


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "across_net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)


def pieces_of(result):
    return {name: piece for name, piece in newest_pieces(result).items() if not name.startswith("random.")}


def assert_same(pieces, expected):
    assert pieces.keys() == expected.keys()
    for name, piece in expected.items():
        scale = piece.abs().max().clamp(min=1e-300)
        assert (pieces[name] - piece).abs().max() / scale <= 1e-12, name


ROUTES = {
    "strategies": ["single 1", "naive 2", "ddp 2", "dp 2", "single 1"],
    "sizes": ["ddp 1", "ddp 2", "ddp 3", "ddp 1"],
    "both": ["dp 3", "naive 4", "dp 2", "ddp 3"],
    "divided": [
        "zero --strategy.stage 3 4",
        "zero --strategy.stage 1 2",
        "onecopy 3",
        "zero --strategy.stage 2 3",
        "single 1",
    ],
}


@pytest.mark.parametrize(("route", "optimizer"), [*((route, "adamw") for route in ROUTES), ("both", "sgd")])
def test_every_few_steps_another_strategy_or_size(capsys, route, optimizer):
    whole = train(capsys, FLAGS, OPTIMIZERS[optimizer], "--name whole")
    legs = [leg.rsplit(maxsplit=1) for leg in ROUTES[route]]
    for number, (strategy, workers) in enumerate(legs):
        # Ends in mid-epoch, at an epoch's end and after its first step: 12 steps in four or five legs.
        steps = STEPS * (number + 1) // len(legs)
        start = (
            f"{FLAGS} {OPTIMIZERS[optimizer]} --name legs"
            if number == 0
            else "--trust-code --resume runs/legs"
        )
        result = train(capsys, start, f"--strategy {strategy} --workers {workers} --steps {steps}")
        assert result["strategy"] == strategy.split()[0]
        assert (result["workers"], result["steps"]) == (int(workers), steps)
    assert_same(pieces_of(result), pieces_of(whole))
    assert result["final_loss"] == pytest.approx(whole["final_loss"], rel=1e-12)
    assert result["test_loss"] == pytest.approx(whole["test_loss"], rel=1e-12)


@pytest.mark.parametrize(("strategy", "step"), [("naive", 7), ("ddp", 2), ("ddp", 7), ("dp", 2)])
def test_under_the_same_strategy_and_size_every_bit_is_the_same(capsys, strategy, step):
    flags = f"{FLAGS} {OPTIMIZERS['adamw']} --strategy {strategy} --workers 3"
    whole = train(capsys, flags, "--name whole")
    train(capsys, flags, f"--name cut --steps {step}")
    resumed = train(capsys, f"--trust-code --resume runs/cut --steps {STEPS}")
    assert resumed["weights_sha256"] == whole["weights_sha256"]
    assert resumed["final_loss"] == whole["final_loss"]
    expected = pieces_of(whole)
    assert all(torch.equal(piece, expected[name]) for name, piece in pieces_of(resumed).items())


def test_another_strategy_brings_its_own_settings(capsys):
    train(capsys, FLAGS, "--strategy naive --check-init --workers 2 --steps 2 --name mine")
    result = train(capsys, "--trust-code --resume runs/mine --steps 4 --strategy ddp --strategy.bucket_mib 3")
    assert result["steps"] == 4
    written = Path("runs/mine/config.toml").read_text()
    assert "bucket_mib = 3.0" in written
    assert "check_init" not in written


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ("--lr 0.5", "optimizer.lr"),
        ("--batch-size 8", "train.batch_size"),
        ("--partition random", "partition.name"),
        ("--seed 1", "seed"),
    ],
)
def test_what_decides_what_is_computed_stays_the_runs_own(capsys, change, path):
    train(capsys, FLAGS, "--steps 2 --name mine")
    assert main(["train", "--resume", "runs/mine", *change.split()]) == 2
    said = capsys.readouterr().err
    assert f"--resume cannot change {path}" in said
    assert "strategy.*" in said


def test_a_change_that_cannot_be_is_refused_and_the_run_stays_as_it_was(capsys):
    train(capsys, FLAGS, "--strategy naive --workers 2 --steps 2 --name mine")
    before = Path("runs/mine/config.toml").read_text()
    assert main(["train", "--resume", "runs/mine", "--strategy", "single"]) == 2
    assert "strategy single does not support --workers 2" in capsys.readouterr().err
    assert Path("runs/mine/config.toml").read_text() == before
