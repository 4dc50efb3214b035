"""The example of padded text: data, model, loss and metric of several tensors, through the commands."""

import json
import sys
from pathlib import Path

import pytest

from shoal.cli.main import main

ROOT = Path(__file__).parents[2]
MODULE = "examples.padded_text"
TRAIN = (
    f"train --data {MODULE}:data --data.samples 200 --data.largest 9 --model {MODULE}:Model --model.width 8 "
    f"--loss {MODULE}:loss --metrics {MODULE}:right --batch-size 32 --epochs 2 --threads 1 --device cpu "
    "--launcher threads --optimizer sgd --lr 0.5 --json"
)


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)
    yield
    sys.modules.pop(MODULE, None)


@pytest.fixture
def answered(tmp_path, capsys):
    def answer(words, *more):
        code = main([*words.split(), *more])
        found = capsys.readouterr()
        assert code == 0, found.err
        return found.out

    return answer


def test_the_workers_of_a_run_divide_by_one_count(answered, tmp_path):
    folder = "--runs-dir", str(tmp_path)
    one = json.loads(answered(TRAIN, *folder, "--name", "one"))
    three = json.loads(answered(TRAIN, *folder, "--name", "three", "--strategy", "zero", "--workers", "3"))
    assert one["test_loss"] == pytest.approx(three["test_loss"], abs=1e-5)
    assert one["test_accuracy"] is None, "labels in a dictionary are no classes to us"
    assert 0 <= one["test_metrics"]["right"] <= 1

    evaluated = json.loads(answered(f"evaluate {tmp_path / 'three'} --trust-code --json"))
    assert evaluated["loss"] == pytest.approx(three["test_loss"], rel=1e-6)
    assert evaluated["metrics"] == pytest.approx(three["test_metrics"])

    answered(f"report {tmp_path / 'three'}", "--out", str(tmp_path / "page"))
    assert "right" in "".join(page.read_text() for page in (tmp_path / "page").rglob("*.md"))


def test_runs_are_compared(answered, tmp_path):
    folder = "--runs-dir", str(tmp_path)
    short = TRAIN.replace("--epochs 2", "--steps 4")
    answered(short, *folder, "--name", "one")
    answered(short, *folder, "--name", "two", "--strategy", "ddp", "--workers", "2")
    words = f"compare {tmp_path / 'one'} {tmp_path / 'two'} --json --quiet"
    _, two = json.loads(answered(words, "--out", str(tmp_path / "page")))["runs"]
    assert two["test_accuracy"] is None
    assert two["final_difference"] < 1e-5
