"""`shoal explain`: what a student sees of an algorithm."""

import pytest

from shoal.cli.main import main
from shoal.comm.algorithms import ALGORITHMS


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_can_be_explained_and_drawn(name, tmp_path, capsys):
    picture = tmp_path / "rounds.svg"
    assert main(["explain", name, "--workers", "3", "--svg", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "round 1" in out
    assert "sent by rank 2" in out
    assert picture.read_text().startswith("<svg")


def test_without_a_name_all_are_listed(capsys):
    assert main(["explain"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ALGORITHMS)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["rng"], "did you mean 'ring'?"),
        (["ring", "--workers", "many"], "--workers: expected an integer ≥ 1 and ≤ 256, got 'many'"),
        (["ring", "--workers", "0"], "got 0"),
        (["ring", "--workers", "2", "--svg", "/proc/nothing.svg"], "cannot write /proc/nothing.svg"),
        (["ring", "tree"], "unexpected argument 'tree'"),
    ],
)
def test_bad_input_is_one_sentence(words, sentence, capsys):
    assert main(["explain", *words]) == 2
    assert sentence in capsys.readouterr().err
