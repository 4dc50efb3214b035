"""Links between real processes, slow and bad workers, as a user puts them there."""

import json

import pytest

from shoal.cli.main import main
from shoal.events.file import read_events

TINY = "--data synthetic --data.samples 96 --data.shape 1,4,4 --data.classes 3 --model mlp --model.hidden 8 "
TINY += "--batch-size 32 --steps 4 --threads 1 --device cpu --strategy naive --workers 2 --exchange by:ring"


def train(capsys, tmp_path, name, flags, code=0):
    words = [*TINY.split(), *flags, "--runs-dir", str(tmp_path), "--name", name, "--json"]
    assert main(["train", *words]) == code
    captured = capsys.readouterr()
    return json.loads(captured.out.splitlines()[-1]) if not code else None, captured.err


def test_a_link_changes_how_long_it_takes_and_not_what_is_computed(capsys, tmp_path):
    linked, said = train(capsys, tmp_path, "link", ["--link", "0-1:100mbit,2ms"])
    assert "link 0-1: 100 Mbit/s asked, " in said
    assert " measured, latency " in said
    links = [event for event in read_events(tmp_path / "link/events.rank0.jsonl") if event["event"] == "link"]
    assert [event["ends"] for event in links] == [[0, 1]]
    assert links[0]["asked_bits_per_s"] == 100e6
    assert links[0]["latency_s"] >= 0.002, "nothing arrives before its time"
    free, said = train(capsys, tmp_path, "free", ["--launcher", "threads"])
    assert "note:" not in said
    assert linked["weights_sha256"] == free["weights_sha256"]
    assert linked["bytes_sent"] == free["bytes_sent"]  # the names of both runs are as long


def test_a_bad_worker_is_named(capsys, tmp_path):
    _, said = train(
        capsys, tmp_path, "bad", ["--launcher", "threads", "--fault", "rank=1,gradient=nan,step=2"], 2
    )
    assert "rank 1" in said
    steps = [event for event in read_events(tmp_path / "bad/events.rank0.jsonl") if event["event"] == "step"]
    assert [event["step"] for event in steps] == [0, 1], "stopped before the step that is bad"


@pytest.mark.parametrize(
    "flags",
    [["--link", "0-2:1gbit"], ["--bottleneck", "rank=2,slowdown=3"], ["--fault", "rank=2,gradient=nan"]],
)
def test_a_worker_that_is_not_there_is_refused_before_anything_starts(capsys, tmp_path, flags):
    _, said = train(capsys, tmp_path, "never", flags, code=2)
    assert f"'{flags[1]}' names worker 2, but there are only 2: 0 to 1" in said
    assert list(tmp_path.iterdir()) == []


def test_one_copy_of_the_weights_has_no_links(capsys, tmp_path):
    flags = ["--strategy", "onecopy", "--exchange", "all_reduce", "--link", "all:1gbit"]
    _, said = train(capsys, tmp_path, "onecopy", flags, code=2)
    assert "which simulated links cannot offer" in said
    assert "no simulated links" in " ".join(said.split())
