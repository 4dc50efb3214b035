"""`shoal runs` as a user runs it."""

import json

import pytest

from shoal.cli.main import main

TINY = "--data synthetic --data.samples 64 --data.shape 1,4,4 --model mlp --model.hidden 8 --batch-size 16 --epochs 1 "
TINY += "--threads 1 --quiet"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("here") / "runs"
    for name, more in (("slow", "--lr 1e-5"), ("fast", "--lr 0.05"), ("sgd", "--optimizer sgd --lr 0.1")):
        assert main(["train", *TINY.split(), *more.split(), "--name", name, "--runs-dir", str(folder)]) == 0
    return folder


@pytest.fixture
def shown(runs, monkeypatch, capsys):
    monkeypatch.chdir(runs.parent)

    def show(*words):
        capsys.readouterr()
        assert main(["runs", *words]) == 0
        return capsys.readouterr().out.splitlines()

    return show


def names_of(lines):
    return [line.split()[2] for line in lines if line.startswith("20")]


def test_all_runs_the_latest_last(shown):
    lines = shown()
    assert names_of(lines) == ["slow", "fast", "sgd"]
    assert "accuracy" in lines[0]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--where", "optimizer=sgd"], ["sgd"]),
        (["--where", "optimizer.lr<0.08", "--where", "optimizer!=sgd"], ["slow", "fast"]),
        (["--sort", "optimizer.lr"], ["slow", "fast", "sgd"]),
        (["--sort", "run"], ["fast", "sgd", "slow"]),
        (["--where", "status=interrupted"], []),
    ],
)
def test_conditions_and_orders(shown, words, expected):
    assert names_of(shown(*words)) == expected


def test_json_has_settings_and_results(shown):
    records = [json.loads(line) for line in shown("--json")]
    assert [record["optimizer.lr"] for record in records] == [1e-5, 0.05, 0.1]
    assert all(len(record["weights_sha256"]) == 64 for record in records)


def test_a_damaged_run_is_named_and_the_others_are_shown(runs, tmp_path, capsys):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.toml").write_text("no toml")
    assert main(["runs", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "bad/config.toml" in captured.err
    assert captured.out == "no runs\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "no folder nowhere"),
        (["--where", "optimizer"], "expected a condition NAME=VALUE, got 'optimizer'"),
        (["--sort", "acuracy"], "unknown column 'acuracy': did you mean 'accuracy'"),
    ],
)
def test_what_is_wrong_is_named(runs, words, sentence, monkeypatch, capsys):
    monkeypatch.chdir(runs.parent)
    assert main(["runs", *words]) == 2
    assert sentence in capsys.readouterr().err
