"""`shoal explain`: what a student sees of an algorithm or a schedule."""

import xml.etree.ElementTree as ElementTree

import pytest

from shoal.cli import text
from shoal.cli.main import main
from shoal.comm.algorithms import ALGORITHMS
from shoal.parallel.layout.pipeline.schedules import SCHEDULES


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_can_be_explained_and_drawn(name, tmp_path, capsys):
    picture = tmp_path / "rounds.svg"
    assert main(["explain", name, "--workers", "3", "--svg", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "round 1" in out
    assert "sent by rank 2" in out
    assert picture.read_text().startswith("<svg")


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_can_be_explained_and_drawn(name, tmp_path, capsys):
    picture = tmp_path / "schedule.svg"
    assert main(["explain", name, "--stages", "4", "--microbatches", "8", "--svg", str(picture)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{name}, 4 stages, 8 micro-batches: ")
    assert "stage 3  · · · F0" in out
    assert "formula: " in out
    assert out.endswith(f"wrote {picture}\n")
    assert picture.read_text().startswith("<svg")


def test_without_a_name_all_are_listed(capsys):
    assert main(["explain"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in [*ALGORITHMS, *SCHEDULES])


@pytest.mark.parametrize("name", ["ring", "1f1b"])
def test_a_dash_writes_the_drawing_alone_to_standard_output(name, capsys):
    assert main(["explain", name, "--svg", "-"]) == 0
    assert ElementTree.fromstring(capsys.readouterr().out).tag.endswith("svg")


def test_weight_gradients_once_per_step_are_drawn(capsys):
    assert main(["explain", "1f1b", "--weights-once", "--microbatches", "2", "--stages", "2"]) == 0
    assert "stage 1  · F0I0F1I1W*──" in capsys.readouterr().out


def test_a_terminal_has_colours(capsys, monkeypatch):
    monkeypatch.setattr(text, "_has_styles", lambda stream: True)
    assert main(["explain", "zero-bubble"]) == 0
    out = capsys.readouterr().out
    assert "\033[97;44mF0F1F2F3\033[0m" in out
    assert "\033[30;102mW0\033[0m" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["rng"], "did you mean 'ring'?"),
        (["1f2b"], "did you mean '1f1b'?"),
        (["ring", "--workers", "many"], "--workers: expected an integer ≥ 1 and ≤ 256, got 'many'"),
        (["ring", "--workers", "0"], "got 0"),
        (["ring", "--workers", "2", "--svg", "/proc/nothing.svg"], "cannot write /proc/nothing.svg"),
        (["ring", "tree"], "unexpected argument 'tree'"),
        (["ring", "--stages", "4"], "--stages has no effect on the algorithm ring"),
        (["ring", "--weights-once"], "--weights-once has no effect on the algorithm ring"),
        (["1f1b", "--workers", "4"], "--workers has no effect on the schedule 1f1b"),
        (["1f1b", "--stages", "0"], "--stages: expected an integer ≥ 1 and ≤ 32, got 0"),
        (["1f1b", "--stages", "33"], "--stages: expected an integer ≥ 1 and ≤ 32, got 33"),
        (["gpipe", "--microbatches", "0"], "--microbatches: expected an integer ≥ 1 and ≤ 64, got 0"),
        (["gpipe", "--microbatches", "two"], "--microbatches: expected an integer ≥ 1 and ≤ 64, got 'two'"),
        (["async", "--weights-once"], "async updates after every micro-batch"),
        (["1f1b", "--svg", "/proc/nothing.svg"], "cannot write /proc/nothing.svg"),
        (["--stages", "4"], "NAME is required"),
    ],
)
def test_bad_input_is_one_sentence(words, sentence, capsys):
    assert main(["explain", *words]) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert "Traceback" not in captured.err
