"""`shoal trace` as a user runs it."""

import json
import sys
from pathlib import Path

import pytest

from shoal.cli.main import main

sys.path.append(str(Path(__file__).parents[1] / "report"))
from made_steps import two_ranks


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return two_ranks(tmp_path / "it")


def test_the_trace_is_one_file_and_never_overwrites_another(folder, capsys):
    assert main(["trace", "it"]) == 0
    assert capsys.readouterr().out.startswith("it/trace.json")
    assert len(json.loads((folder / "trace.json").read_text())["traceEvents"]) > 10
    assert main(["trace", "it"]) == 2
    assert "it/trace.json exists" in capsys.readouterr().err
    assert main(["trace", "it", "--out", "other.json"]) == 0
    assert Path("other.json").read_text() == (folder / "trace.json").read_text()


def test_what_is_damaged_is_named_and_the_rest_is_written(folder, capsys):
    (folder / "events.rank1.jsonl").unlink()
    assert main(["trace", "it"]) == 0
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "events.rank1.jsonl" in error


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["none"], "no run folder none"),
        (["it", "--out", "missing/trace.json"], "cannot write missing/trace.json"),
        (["it", "--out", "."], ". exists"),
        (["."], "is not a run folder"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(folder, words, sentence, capsys):
    assert main(["trace", *words]) == 2
    assert sentence in capsys.readouterr().err.splitlines()[0]
    assert sorted(path.name for path in Path().iterdir()) == ["it"]
