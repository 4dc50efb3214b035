"""The examples of parts of one's own keep their contracts, are as short as they say, and train."""

import json
import sys
from pathlib import Path

import pytest

from shoal.cli.main import main
from shoal.strategies.pipeline.schedules import build
from shoal.strategies.pipeline.timing import StageTimes, timeline

ROOT = Path(__file__).parents[2]
TINY = (
    "train --data synthetic --data.samples 48 --data.shape 1,4,4 --data.classes 3 --model mlp --model.hidden 8,8 "
    "--batch-size 12 --epochs 2 --threads 1 --device cpu --launcher threads --optimizer sgd --lr 0.1 --json"
)


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)
    yield
    for name in ("own_codec", "own_rule", "own_schedule"):
        sys.modules.pop(f"examples.{name}", None)


@pytest.fixture
def trained(tmp_path, capsys):
    def train(*flags):
        code = main([*TINY.split(), "--runs-dir", str(tmp_path), *flags])
        found = capsys.readouterr()
        assert code == 0, found.err
        return json.loads(found.out)

    return train


@pytest.fixture
def final_loss(trained):
    return lambda *flags: trained(*flags)["final_loss"]


def test_the_codec(final_loss, capsys):
    assert main(["check", "codec", "examples.own_codec:Natural", "--json"]) == 0
    found = {check["name"]: check["found"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert "257 float32 in 261 bytes" in found["declared size"]
    assert found["bias"].startswith("unbiased")
    flags = "--strategy", "ddp", "--workers", "2", "--exchange"
    exact = final_loss(*flags, "all_reduce")
    natural = final_loss(*flags, "compressed:examples.own_codec:Natural")
    assert natural != exact
    assert natural == pytest.approx(exact, rel=0.05)


def test_the_rule(final_loss, capsys):
    assert main(["check", "rule", "examples.own_rule:geometric_median", "--workers", "3", "--json"]) == 0
    found = {check["name"]: check["found"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert found["breakdown"].startswith("1 of 3 workers may attack")
    flags = "--strategy", "ddp", "--workers", "3"
    good = final_loss(*flags)
    flipped = *flags, "--fault", "rank=1,gradient=flip"
    without = abs(final_loss(*flipped) - good)
    median = abs(final_loss(*flipped, "--exchange", "robust:examples.own_rule:geometric_median") - good)
    assert median < without / 2


def test_the_schedule(trained, capsys):
    name = "examples.own_schedule:eager"
    assert main(["check", "schedule", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["passed"], found["peak_live"]) == (True, [7, 5, 3, 1])
    slow = StageTimes(activation=1, gradient=1)
    bubbles = [timeline(build(each, 4, 8).rows, slow).bubble for each in (name, "1f1b")]
    assert bubbles[0] < bubbles[1] - 0.1, "messages do not have more time"
    pipeline = "--mesh", "pipeline=2", "--pipeline.microbatches", "4", "--pipeline.schedule"
    own, ours = (trained(*pipeline, each)["weights_sha256"] for each in (name, "1f1b"))
    assert own == ours


@pytest.mark.parametrize("name", ["own_codec", "own_rule", "own_schedule"])
def test_they_are_short(name):
    program = (ROOT / "examples" / f"{name}.py").read_text().partition('"""\n\n')[2]
    assert len([line for line in program.splitlines() if line.strip()]) <= 30
