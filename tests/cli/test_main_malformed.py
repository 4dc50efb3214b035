"""Malformed flags and recipes: exit code 2 and one sentence, whatever the input. MALFORMED_SEED draws others."""

import os
import subprocess
import sys

import pytest
from malformed import draw

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


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--workers", "1000000000", "--strategy", "ddp"],
        ["train", "--model", "mlp", "--model.hidden", "99999999999"],
        ["train", "--threads", "99999999"],
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
