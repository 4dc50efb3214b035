"""`shoal explain`: what a student sees of an algorithm or a schedule."""

import xml.etree.ElementTree as ElementTree

import pytest

from shoal.cli import text
from shoal.cli.main import main
from shoal.comm.algorithms import ALGORITHMS
from shoal.strategies.pipeline.schedules import SCHEDULES


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


@pytest.mark.parametrize("name", ["ring", "1f1b"])
def test_a_drawing_that_cannot_be_written_is_an_error_after_the_explanation(name, capsys):
    assert main(["explain", name, "--svg", "/proc/nothing.svg"]) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{name}, ")
    assert "/proc/nothing.svg" in captured.err


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
