"""`shoal verify` on programs of torch's, unchanged: a bug is named, and the fixed program is equal."""

import json
import subprocess

import pytest
from launching import HERE, command, environment

from shoal.verify.worker import OUTCOME

pytestmark = pytest.mark.long
PROGRAM = str(HERE / "verify_program.py")


def verified(tmp_path, *words):
    ended = subprocess.run(
        command("verify", *words),
        cwd=tmp_path,
        env=environment(TMPDIR=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert list(tmp_path.glob(f"**/{OUTCOME}")) == []
    return ended


def test_a_correct_program_is_equal_to_the_end(tmp_path):
    ended = verified(tmp_path, "--workers", "2", "--json", "--", PROGRAM, "none")
    assert ended.returncode == 0, ended.stderr
    said, _, outcome = ended.stdout.strip().rpartition("\n")
    assert said.count("trained") == 2  # the workers' words, and not one machine's
    assert json.loads(outcome) == {"workers": 2, "steps": 10, "finding": None, "notes": []}


@pytest.mark.parametrize(
    ("bug", "expected"), [("mean twice", (0, "exchange", None)), ("set_epoch", (5, "data", None))]
)
def test_a_bug_is_named(tmp_path, bug, expected):
    ended = verified(tmp_path, "--json", PROGRAM, bug)
    assert ended.returncode == 1, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])["finding"]
    assert (found["step"], found["phase"], found["rank"]) == expected


def test_as_many_steps_as_asked_for(tmp_path):
    ended = verified(tmp_path, "--steps", "3", "--json", PROGRAM, "none")
    assert json.loads(ended.stdout.splitlines()[-1])["steps"] == 3
    assert "trained" not in ended.stdout


def test_a_program_that_needs_several_workers_is_refused(tmp_path):
    ended = verified(tmp_path, PROGRAM, "alone")
    assert ended.returncode == 2
    assert "world of one" in ended.stderr
    assert "one is no group" in ended.stderr


def test_parameters_in_shards_are_put_together(tmp_path):
    ended = verified(tmp_path, "--json", str(HERE / "verify_shards_program.py"))
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1])["steps"] == 4


DIVIDED = str(HERE / "verify_divided_program.py")


@pytest.mark.parametrize("how", ["onecopy", "1", "afterwards"])
def test_training_divided_by_an_object_of_shoals_is_equal(tmp_path, how):
    ended = verified(tmp_path, "--json", DIVIDED, how, "none")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1])["steps"] == 3


def test_a_bug_of_a_program_with_zero_is_named(tmp_path):
    ended = verified(tmp_path, "--json", DIVIDED, "3", "mean twice")
    assert ended.returncode == 1, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])["finding"]
    assert (found["step"], found["phase"], found["rank"]) == (0, "exchange", None)
    assert "once more" in found["cause"]


@pytest.mark.parametrize(("how", "bug", "strategy"), [("dp", "none", "dp"), ("3", "gathered", "zero")])
def test_a_program_that_cannot_be_seen_is_refused_with_a_command_that_compares_it(
    tmp_path, how, bug, strategy
):
    ended = verified(tmp_path, DIVIDED, how, bug)
    assert ended.returncode == 2
    assert f"shoal verify --strategy {strategy}" in ended.stderr


def test_a_program_that_fails_is_no_difference(tmp_path):
    ended = verified(tmp_path, PROGRAM, "raises")
    assert ended.returncode == 2
    assert "ValueError: a fault of its own" in ended.stderr
    assert "different" not in ended.stdout
