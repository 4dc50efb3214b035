"""`shoal check`: what a user sees of an exchange of his own, judged; and the examples that come with shoal."""

import json
import sys
from pathlib import Path

import pytest

from shoal.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"

MODULE = """
from shoal.comm.reduction import Op

def right(group, bucket, times=1.0):
    return group.all_reduce(bucket)

def mean(group, bucket):
    return group.all_reduce(bucket, Op.AVERAGE)
"""


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    (tmp_path / "exchange_to_check.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("exchange_to_check", None)


def test_one_that_keeps_the_contract(capsys):
    assert main(["check", "exchange", "exchange_to_check:right", "--workers", "3"]) == 0
    out = capsys.readouterr().out
    assert "exchange_to_check:right: a sum, with 1 to 3 workers" in out
    assert "FAIL" not in out
    assert "all 8 passed" in out


def test_one_that_does_not_shows_the_first_wrong_values(capsys):
    assert main(["check", "exchange", "exchange_to_check:mean", "--workers", "2"]) == 1
    out = capsys.readouterr().out
    assert "FAIL  the sum" in out
    assert "2 workers, 257 × float32: element 0 is 340.329529 on rank 0, and 680.659059 as the sum" in out
    assert "1 of 8 checks failed" in out


def test_a_mean_is_a_rule_that_does_not_stand_for_the_sum(capsys):
    assert main(["check", "exchange", "exchange_to_check:mean", "--workers", "2", "--rule"]) == 1
    assert "FAIL  stands for the sum" in capsys.readouterr().out


def test_as_json(capsys):
    assert main(["check", "exchange", "exchange_to_check:mean", "--workers", "2", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["exchange"], report["workers"], report["passed"]) == (
        "exchange_to_check:mean",
        [1, 2],
        False,
    )
    assert [check["name"] for check in report["checks"] if not check["passed"]] == ["the sum"]


def test_a_codec_is_not_examined_as_an_exact_sum(capsys):
    assert main(["check", "exchange", "compressed:sign", "--workers", "2"]) == 0
    printed = capsys.readouterr().out
    assert "compressed:sign: a lossy sum, with 1 to 2 workers" in printed
    assert "the result is the sum" not in printed


def test_ours_may_be_named_too(capsys):
    assert main(["check", "exchange", "robust:median", "--workers", "4"]) == 0
    assert "a rule, with 3 to 4 workers" in capsys.readouterr().out
    assert main(["check", "exchange", "robust:median", "--workers", "3"]) == 0
    assert "a rule, with 3 workers" in capsys.readouterr().out


def test_help(capsys):
    assert main(["check", "--help"]) == 0
    assert "strategy  Run the contract of strategies" in capsys.readouterr().out
    assert main(["check", "exchange", "--help"]) == 0
    assert "--rule" in capsys.readouterr().out


@pytest.fixture
def in_examples(monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    yield
    sys.modules.pop("my_exchange", None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["my_exchange:half_ring"], "a sum in bfloat16, with 1 to 4 workers"),
        (["my_exchange:clipped", "--workers", "3", "--exchange.times", "2"], "a rule, with 1 to 3 workers"),
    ],
)
def test_the_examples_keep_the_contract(in_examples, words, said, capsys):
    assert main(["check", "exchange", *words]) == 0
    assert said in capsys.readouterr().out


def test_a_lossy_example_is_found_out_where_it_claims_to_be_exact(in_examples, capsys):
    assert main(["check", "exchange", "my_exchange:half_ring", "--precision", "float32"]) == 1
    assert "FAIL  the sum" in capsys.readouterr().out


TINY = (
    "--data synthetic --data.samples 64 --data.shape 1,4,4 --data.classes 3 --model linear --batch-size 16 "
)
TINY += (
    "--epochs 2 --threads 1 --device cpu --strategy naive --launcher threads --optimizer sgd --lr 0.1 --json"
)


def trained(folder, *words):
    assert main(["train", *TINY.split(), "--runs-dir", str(folder), *words]) == 0


def test_the_examples_train(in_examples, tmp_path, capsys):
    losses = {}
    for name, words in {
        "exact": "--workers 2",
        "half_ring": "--workers 2 --exchange my_exchange:half_ring",
        "clipped": "--workers 3 --exchange my_exchange:clipped --exchange.times 2",
    }.items():
        trained(tmp_path, "--name", name, *words.split())
        losses[name] = json.loads(capsys.readouterr().out)["final_loss"]
    assert losses["half_ring"] != losses["exact"], "it was not used"
    assert losses["half_ring"] == pytest.approx(losses["exact"], rel=0.02)
    assert losses["clipped"] == pytest.approx(losses["exact"], rel=0.2)
