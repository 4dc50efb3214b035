"""Training with state in 8 bits and parameters in bfloat16 learns digits as float32 does."""

import json

import pytest

from shoal.cli.main import main

RUN = (
    "--data digits --model mlp --optimizer adam --epochs 3 --batch-size 64 --threads 1 --device cpu --seed 1"
)
WITHIN = 0.01
"""The largest difference of test accuracies: one point."""


def accuracy(capsys, flags):
    assert main(["train", "--json", *f"{RUN} {flags}".split()]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out.splitlines()[-1])["test_accuracy"]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_accuracy_is_within_a_point_of_float32(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    plain = accuracy(capsys, "--name plain")
    for name, flags in {
        "bits": "--memory.state_bits 8",
        "bf16": "--memory.parameters bf16",
        "both": "--memory.state_bits 8 --memory.parameters bf16 --memory.step_in_backward",
    }.items():
        assert abs(accuracy(capsys, f"{flags} --name {name}") - plain) <= WITHIN, name
