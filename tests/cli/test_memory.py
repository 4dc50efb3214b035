"""`shoal memory`: what a user sees, and what is refused before anything is allocated."""

import json

import pytest

from shoal.cli.main import main


def test_the_formulas_of_many_workers_are_shown_without_them(capsys):
    flags = "--model linear --optimizer adam --strategy zero --strategy.stage 3 --workers 1000 --formula-only"
    assert main(["memory", *flags.split()]) == 0
    out = capsys.readouterr().out
    assert "8Ψ/N" in out
    assert "one of 1000 workers" in out
    assert main(["memory", *flags.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workers"] == 1000


def test_one_worker_is_measured(capsys):
    assert main(["memory", "--model", "lenet", "--techniques", "false", "--json"]) == 0
    (worker,) = json.loads(capsys.readouterr().out)["by_worker"]
    assert worker["num_params"] == 51_902
    assert worker["measured_bytes"] > 8 * 51_902


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--strategy rpc --workers 2", "there is no formula for the memory of strategy rpc"),
        ("--strategy pipeline --workers 2 --formula-only", "--formula-only knows no worker's part"),
        ("--strategy ddp --workers 2 --launcher threads", "thread workers share one process"),
        ("--strategy ddp --workers 2 --model mlp --model.hidden 300000,300000", "2 workers need at least"),
        (
            "--strategy pipeline --workers 2 --pipeline.schedule async --pipeline.microbatches 2",
            "there is no formula for --pipeline.schedule async",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(capsys, flags, message):
    assert main(["memory", "--model", "mlp", *flags.split()]) == 2
    assert message in capsys.readouterr().err


def test_a_model_whose_training_does_not_fit_is_refused_before_it_is_built(capsys, monkeypatch):
    monkeypatch.setattr("shoal.config.checks.memory_bytes", lambda: 300 * 2**20)
    # Weights and gradients would fit, with the moments of Adam it does not.
    flags = "--model mlp --model.hidden 2048,2048 --optimizer adam --strategy ddp --workers 2"
    assert main(["memory", *flags.split()]) == 2
    assert "(0.0889 GiB by formula per worker)" in capsys.readouterr().err
