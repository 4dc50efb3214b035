"""Malformed flags and recipes: exit code 2 and one sentence, whatever the input. MALFORMED_SEED draws others."""

import os
import subprocess
import sys

import pytest
from malformed import SMALL, draw

from shoal.cli.main import main

SEED = int(os.environ.get("MALFORMED_SEED", "0"))
ONE = os.environ.get("MALFORMED_NUMBER")
NUMBERS = range(400) if ONE is None else [int(ONE)]


@pytest.mark.parametrize("number", NUMBERS)
def test_it_is_refused_with_one_sentence(tmp_path, monkeypatch, capsys, number):
    monkeypatch.chdir(tmp_path)
    words, recipe = draw(SEED, number)
    if recipe is not None:
        (tmp_path / "drawn.toml").write_bytes(recipe)
    replay = f"MALFORMED_SEED={SEED} MALFORMED_NUMBER={number} pytest tests/cli/test_main_malformed.py"
    about = f"{str(words)[:300]} {str(recipe)[:200]}; repeat with: {replay}"
    try:
        code = main(["drawn.toml" if word == "RECIPE" else word for word in words])
    except BaseException as error:
        raise AssertionError(f"{type(error).__name__}: {error!s:.200} from {about}") from error
    said = capsys.readouterr().err
    assert code == 2, f"exit code {code} from {about}: {said[-500:]}"
    assert said.count("error:") + said.count("── error") == 1, about
    assert "Traceback" not in said, about
    assert len(said) < 2000, f"{len(said)} characters from {about}"


MEMORY = ["memory", "--formula-only"]


@pytest.mark.parametrize(
    "words",
    [
        ["train", *SMALL, "--seed", "1_000"],
        ["train", *SMALL, "--lr", "1_0.5"],
        ["train", *SMALL, "--model", "mlp", "--model.hidden", "4,,4"],
        ["train", *SMALL, "--data.shape", ","],
        ["train", *SMALL, "--metrics", ","],
        ["train", *SMALL, "--metrics", "top1,"],
        ["train", *SMALL, "--link", ";"],
        ["train", *SMALL, "--mesh", "data"],
        ["train", *SMALL, "--gpu", "99"],
        ["train", *SMALL, "--dry-run", "--gpu", "99"],
        ["train", *SMALL, "--dry-run", "--rank", "2", "--world-size", "2", "--master", "localhost:1"],
        ["train", *SMALL, "--name", " "],
        ["train", *SMALL, "--runs-dir", ""],
        ["train", *SMALL, "--launch.timeout", "1e300"],
        ["train", "--workers", "1000000000", "--strategy", "ddp"],
        ["train", "--model", "mlp", "--model.hidden", "99999999999"],
        ["train", "--threads", "99999999"],
        ["train", "--resume", ""],
        ["train", ""],
        ["train", "empty.toml"],
        ["train", "comment.toml"],
        ["compare", "empty.toml"],
        ["runs", "", "--json"],
        ["runs", ".", "--where", "accuracy>abc"],
        ["runs", ".", "--where", "accuracy>"],
        ["runs", ".", "--where", "accuracy<nan"],
        ["runs", ".", "--where", "steps>1_000"],
        ["runs", ".", "--where", ""],
        ["runs", ".", "--sort", ""],
        ["report", " "],
        ["launch", "--workers", "2", ""],
        ["bench", "collectives", "--workers", "1"],
        ["bench", "collectives", "--group", ","],
        [*MEMORY, "--model", "mlp", "--model.hidden", "1000000000000,1000000000000"],
        [*MEMORY, "--model", "mlp", "--model.hidden", str(10**18)],
        [*MEMORY, "--model", "resnet18", "--model.width", str(10**12)],
        [*MEMORY, "--mesh", "data"],
    ],
)
def test_what_is_blank_or_no_number_is_refused_too(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "empty.toml").touch()
    (tmp_path / "comment.toml").write_text("# nothing yet\n")
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.count("error:") + said.count("── error") == 1, said
    assert sorted(os.listdir(tmp_path)) == ["comment.toml", "empty.toml"], "nothing was started or written"
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_a_comparison_with_text_needs_a_column_of_texts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *SMALL, "--name", "one"]) == 0
    capsys.readouterr()
    for condition, names in {
        "accuracy>=0": "one",
        "model>aaa": "one",
        "model=x": "",
        "accuracy!=abc": "one",
    }.items():
        assert main(["runs", "--where", condition, "--json"]) == 0
        assert names in capsys.readouterr().out
    assert main(["runs", "--where", "accuracy>abc"]) == 2
    assert "abc" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["train", "nested.toml"],
        ["train", "--name", os.fsdecode(b"\xff")],
    ],
)
def test_the_real_command_refuses_it_too(tmp_path, words):
    (tmp_path / "nested.toml").write_text(f"x = {'[' * 2000}{']' * 2000}")
    done = subprocess.run(
        [sys.executable, "-m", "shoal", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["nested.toml"], "nothing was started or written"
