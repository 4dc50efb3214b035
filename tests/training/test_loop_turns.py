"""Runs with a parameter server: every sample once per epoch, staleness within its bound, all stop at one step."""

import json
import re
from pathlib import Path

import pytest
from sample_ledger import FLAGS, SAMPLES

from shoal.cli.main import main
from shoal.events.file import read_events
from shoal.training.weights import read_model

HERE = Path(__file__).parent
TINY = "--data synthetic --data.samples 100 --data.shape 1,4,4 --data.classes 3 --batch-size 20 --model mlp "
TINY += "--threads 1 --device cpu --launcher threads --strategy server"
MODES = ["asp", "ssp", "bsp", "hogwild"]


@pytest.fixture(autouse=True)
def model_importable(monkeypatch):
    monkeypatch.chdir(HERE)


def train(capsys, folder, *words, code=0):
    is_new = "--resume" not in words[0]
    where = ["--runs-dir", str(folder), "--name", "run"] if is_new else ["--trust-code"]
    assert main(["train", "--json", *" ".join(words).split(), *where]) == code, capsys.readouterr().err
    out = capsys.readouterr().out
    return json.loads(out.splitlines()[-1]) if code == 0 else None


def updates(folder, rank, event="update"):
    return [
        record for record in read_events(folder / f"run/events.rank{rank}.jsonl") if record["event"] == event
    ]


LEDGER = f"{FLAGS} --checkpoint-every 1000 --batch-size 20 --strategy server --launcher threads"
"""Five steps per epoch, all of one size: an entry of the ledger is 1/20 for each time that a sample was used."""


def times_used(folder):
    """How often each worker has used each sample."""
    return (-20 * read_model(folder / "run/model.safetensors")[0]["entries"]).round(decimals=9)


@pytest.mark.parametrize("mode", MODES)
def test_every_sample_is_used_once_per_epoch(tmp_path, capsys, mode):
    found = train(capsys, tmp_path, LEDGER, f"--strategy.mode {mode} --workers 3 --epochs 2")
    assert (found["workers"], found["steps"]) == (3, 10)
    # Two updates of one element at once may lose one, but no two workers of this model write the same element.
    assert times_used(tmp_path).sum(0).tolist() == [2.0] * SAMPLES


def test_a_run_that_takes_turns_is_resumed_with_every_sample_once(tmp_path, capsys):
    train(capsys, tmp_path, LEDGER, "--strategy.mode asp --workers 2 --epochs 2 --steps 7")
    found = train(capsys, tmp_path, f"--resume {tmp_path / 'run'} --steps 10")
    assert (found["status"], found["steps"]) == ("completed", 10)
    assert times_used(tmp_path).sum(0).tolist() == [2.0] * SAMPLES
    sequences = [event["sequence"] for event in updates(tmp_path, 2) if event["rank"] == 0]
    assert sequences == sorted(set(sequences)), "the ledger goes on where it was saved"


def test_the_log_of_versions_shows_the_bound_of_every_update(tmp_path, capsys):
    bound, slow = 1, "--bottleneck rank=1,delay=4ms"
    flags = (
        f"--strategy.mode ssp --strategy.staleness {bound} --strategy.servers 2 --workers 3 --epochs 4 {slow}"
    )
    found = train(capsys, tmp_path, TINY, flags)
    for server in (3, 4):
        log = updates(tmp_path, server)
        assert [event["version"] for event in log] == list(range(1, 3 * 20 + 1))
        for event in log:
            finished = [0, 0, 0]
            for earlier in log[: event["from_version"]]:
                finished[earlier["rank"]] += 1
            assert min(finished) >= event["step"] - bound
            assert event["staleness"] == event["version"] - 1 - event["from_version"]
    assert found["server"]["mode"] == "ssp"
    assert found["server"]["updates"] == 60
    assert found["server"]["staleness_max"] == max(event["staleness"] for event in updates(tmp_path, 3)) > 0


def test_a_fast_worker_takes_more_turns(tmp_path, capsys):
    slow = "--bottleneck rank=1,delay=30ms"
    found = train(capsys, tmp_path, TINY, "--strategy.mode asp --workers 2 --epochs 4", slow)
    log = updates(tmp_path, 2)
    assert found["server"]["updates"] == len(log) == 2 * 20
    assert sorted(event["step"] for event in log) == sorted(2 * list(range(20)))
    by_rank = [sum(event["rank"] == rank for event in log) for rank in range(2)]
    assert by_rank[0] > by_rank[1]


@pytest.mark.parametrize("launcher", ["threads", pytest.param("processes", marks=pytest.mark.long)])
def test_bsp_ends_with_the_weights_of_ddp(tmp_path, capsys, launcher):
    """The same sums in the same order: with the readable optimizer step, the same bits."""
    same = "--workers 2 --epochs 1 --optimizer adam --optimizer.fast false"
    ddp = train(capsys, tmp_path / "ddp", TINY.replace("server", "ddp"), same)
    flags = f"{same} --strategy.servers 2 --launcher {launcher}"
    server = train(capsys, tmp_path / "server", TINY, flags)
    assert server["weights_sha256"] == ddp["weights_sha256"]
    assert server["server"] == {
        "mode": "bsp",
        "gathers": True,
        "repeats": True,
        "exact": True,
        "servers": 2,
        "updates": 5,
        "staleness_mean": 0.0,
        "staleness_max": 0,
        "dropped": 0,
        "skipped": 0,
        "lost": [],
    }


@pytest.mark.parametrize(
    ("flags", "repeats", "exact"),
    [
        ("--exchange compressed:topk", True, False),
        ("--exchange compressed:topk --exchange.ratio 1", True, True),
        ("--exchange robust:median --exchange.bad 1", True, False),
        ("--strategy.backup 1", False, False),
        ("--strategy.mode hogwild", False, False),
    ],
)
def test_the_result_says_when_updates_are_not_one_machines(tmp_path, capsys, flags, repeats, exact):
    found = train(capsys, tmp_path, TINY, f"--workers 3 --steps 1 {flags}")["server"]
    assert (found["repeats"], found["exact"]) == (repeats, exact)


def test_a_codec_goes_on_with_its_warm_up_when_the_number_of_workers_changes(tmp_path, capsys):
    """The ledger starts anew then, and the codecs do not: naive workers encode the same."""
    flags = "--optimizer sgd --exchange compressed:topk --exchange.warmup 3 --workers 2 --steps 4"
    found = []
    for sync in ("naive", "server"):
        train(capsys, tmp_path / sync, TINY.replace("server", sync), flags)
        found.append(
            train(capsys, tmp_path, f"--resume {tmp_path / sync / 'run'} --workers 3 --steps 5 --epochs 2")
        )
    assert found[0]["weights_sha256"] == found[1]["weights_sha256"]


def test_a_server_that_holds_nothing_of_a_small_model_gets_empty_pushes(tmp_path, capsys):
    flags = "--optimizer sgd --exchange compressed:topk --workers 2 --steps 2 --model linear"
    found = [train(capsys, tmp_path / str(n), TINY, flags, f"--strategy.servers {n}") for n in (1, 2)]
    assert found[0]["weights_sha256"] == found[1]["weights_sha256"]


@pytest.mark.parametrize("mode", ["asp", "ssp", "hogwild"])
def test_the_loss_falls_though_updates_are_stale(tmp_path, capsys, mode):
    flags = "--data digits --model linear --batch-size 64 --epochs 1 --workers 3 --lr 0.003"
    found = train(capsys, tmp_path, TINY, f"--strategy.mode {mode} {flags}".replace("--data digits", ""))
    assert found["final_loss"] < 1.1, "three classes: chance is 1.1"


@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_a_push_that_is_not_finite_is_handled_by_the_policy(tmp_path, capsys, policy):
    fault = f"--fault rank=1,gradient=nan --train.on_nonfinite {policy}"
    # Any worker may take any turn, so rank 0 is slow: it leaves turns to rank 1.
    flags = f"--strategy.mode asp --workers 2 --epochs 2 --bottleneck rank=0,delay=20ms {fault}"
    if policy == "stop":
        words = [*TINY.split(), *flags.split(), "--runs-dir", str(tmp_path), "--name", "run"]
        assert main(["train", *words]) != 0
        assert "the norm of rank 1's gradient is nan" in " ".join(capsys.readouterr().err.split())
    else:
        assert (
            main(["train", *TINY.split(), *flags.split(), "--runs-dir", str(tmp_path), "--name", "run"]) == 0
        )
        said = " ".join(capsys.readouterr().err.split())
        assert re.search("the norm of rank 1's gradient is nan .*: the step is left out", said)
        assert all(event["rank"] == 1 for event in updates(tmp_path, 2) if "skipped" in event)
