"""Workers that do not wait for each other learn digits as one machine does."""

import json

import pytest

from shoal.cli.main import main

RUN = (
    "--data digits --model mlp --optimizer sgd --lr 0.1 --epochs 6 --schedule cosine "
    "--threads 1 --device cpu --seed 1"
)
"""The learning rate falls to zero: at a constant one the accuracy of a single machine already differs by five points
from seed to seed, and the modes differ by that too, whatever they do."""

WITHIN = 0.02
"""How much lower the test accuracy may be: two points. Runs do not repeat, and updates are some steps old."""


def accuracy(capsys, flags):
    assert main(["train", "--json", *f"{RUN} {flags}".split()]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out.splitlines()[-1])["test_accuracy"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_accuracy_is_within_two_points_of_one_machine(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    single = accuracy(capsys, "--name single")
    for mode in ("ssp", "asp", "hogwild"):
        found = accuracy(capsys, f"--strategy server --strategy.mode {mode} --workers 3 --name {mode}")
        assert found >= single - WITHIN, mode
