"""`shoal watch` as a user runs it."""

import sys
from pathlib import Path

import pytest

from shoal.cli.main import main

sys.path.append(str(Path(__file__).parents[1] / "watch"))
from growing import Growing


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Growing(tmp_path / "runs" / "it")
    made.begin(total=30)
    made.steps(0, 30)
    made.end(step=30)
    return made


def test_the_newest_run_is_shown_on_the_terminal(folder, capsys):
    assert main(["watch", "--terminal"]) == 0
    assert "30 of 30" in capsys.readouterr().out
    assert main(["watch", "runs/it", "--terminal", "--lang", "zh"]) == 0
    assert "30 / 30" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [["none"], ["--terminal", "--open"], ["--terminal", "--port", "80"], ["runs/it", "--beside", "none"]],
)
def test_what_cannot_be_done_is_one_sentence(folder, words, capsys):
    assert main(["watch", *words]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_without_any_run_the_hint_names_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["watch"]) == 2
    assert "shoal watch RUN" in capsys.readouterr().err
