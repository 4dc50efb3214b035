"""`--exchange compressed:auto` from the command line: what it reports, what is saved, what can be repeated."""

import json

from shoal.cli.main import main
from shoal.events.file import read_events

TINY = "--data synthetic --data.samples 96 --data.shape 1,4,4 --data.classes 3 --model mlp --model.hidden 8 "
TINY += "--batch-size 16 --threads 1 --device cpu --launcher threads --workers 2 --strategy ddp "


def train(flags, capsys):
    assert main(["train", "--json", *flags.split()]) == 0
    out, shown = capsys.readouterr()
    return json.loads(out), shown


def test_it_says_why_and_a_resumed_or_repeated_run_makes_the_same_steps(tmp_path, capsys):
    auto = f"{TINY} --exchange compressed:auto --runs-dir {tmp_path}"
    result, shown = train(f"{auto} --name first --steps 4", capsys)
    events = read_events(tmp_path / "first" / "events.rank0.jsonl")
    (choice,) = [event for event in events if event["event"] == "codec"]
    codec = choice["chosen"]
    assert result["codec"] == codec
    assert choice["step"] == 2
    assert [row["codec"] for row in choice["candidates"]] == ["none", "fp16", "int8", "topk", "powersgd"]
    assert f"note: compressed:auto chose {codec}: {choice['reason']}" in shown
    assert "encode + decode  bytes sent  exchange, predicted" in shown

    resumed, shown = train(f"--resume {tmp_path / 'first'} --steps 6", capsys)
    assert resumed["codec"] == codec
    assert "compressed:auto chose" not in shown, "the choice is not made again"

    repeated, _ = train(f"{auto} --exchange.candidates {codec} --name again --steps 6", capsys)
    assert repeated["weights_sha256"] == resumed["weights_sha256"]
    assert repeated["codec"] == codec
