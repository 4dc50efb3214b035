"""Shares by measured speed: who computes changes, and never what. The times are handed in."""

import json
import math
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sample_ledger import FLAGS, SAMPLES, entries_of

from shoal.cli.main import main
from shoal.comm.threads.group import run_threads
from shoal.data.division import Global
from shoal.events.file import read_events
from shoal.events.folder import RunFolder
from shoal.events.spans import HostClock, SpanRecorder
from shoal.training.hooks import balance as balance_module
from shoal.training.hooks.balance import Balance, balanced, own_seconds, shares_at_least_one

HERE = Path(__file__).parent


def shares_after(steps, costs, begin=None, batch_size=64, overhead_s=0.0):
    """The shares that workers with these seconds per sample come to, and what they wrote down."""

    def work(group):
        division, span, events = Global(10_000, seed=0, size=group.size), SpanRecorder(HostClock()), []
        division.shares = begin or (1,) * group.size
        balance = Balance(division, group, span, batch_size, events.append)
        for step in range(steps):
            mine = division.counts(0, batch_size)[group.rank]
            busy_ns = round(1e9 * (costs[group.rank] * mine + overhead_s)) if mine else 0
            span.marks = [("forward", "compute", 0, busy_ns), ("update", "compute", 0, 10**12)]
            balance.after_step(step, mine)
            span.take()
        return division.counts(0, batch_size), events

    (shares, events), *others = run_threads(len(costs), work)
    assert all(other == (shares, events) for other in others), "all derive the same"
    return shares, events


def test_a_worker_three_times_slower_gets_a_third_of_the_others_share():
    shares, events = shares_after(100, (0.001, 0.003))
    assert shares == (48, 16)
    assert events[0] == {"event": "shares", "step": 10, "shares": [40, 24]}, (
        "half of the way, after ten steps"
    )
    assert all(sum(event["shares"]) == 64 for event in events)
    assert [event["step"] for event in events] == sorted({event["step"] for event in events})


def test_equal_workers_are_left_alone():
    assert shares_after(50, (0.002, 0.002, 0.002)) == ((22, 21, 21), [])


def test_uneven_shares_are_brought_back():
    assert shares_after(100, (0.001, 0.001), begin=(0.2, 0.8))[0] == (32, 32)


def test_a_worker_without_samples_is_measured_again():
    assert shares_after(200, (0.001, 0.001), begin=(1.0, 0.0))[0] == (32, 32)


def test_what_does_not_grow_with_the_share_is_evened_out_too():
    """20 ms a step on every worker beside its samples: in the end both take as long."""
    first, second = shares_after(400, (0.001, 0.003), overhead_s=0.02)[0]
    assert 0.02 + 0.001 * first == pytest.approx(0.02 + 0.003 * second, rel=0.1)


def test_a_moment_of_noise_is_no_reason():
    assert balanced((0.5, 0.5), (1.0, 1.0)) == (0.5, 0.5)
    assert balanced((0.5, 0.5), (math.nan, 1.0)) == (0.5, 0.5), "who was not measured keeps its part"
    assert balanced((0.2, 0.4, 0.4), (math.nan, 1.0, 3.0)) == pytest.approx((0.2, 0.5, 0.3))


def test_small_batches():
    assert shares_at_least_one(2, (0.9, 0.05, 0.05)) == (2, 0, 0)
    assert shares_at_least_one(4, (0.9, 0.05, 0.05)) == (2, 1, 1)


def test_only_what_is_done_for_samples_counts():
    span = SpanRecorder(HostClock())
    span.marks = [
        ("batch", "data", 0, 10**9),
        ("slowed", "compute", 0, 2 * 10**9),
        ("backward", "compute", 0, 10**9),
        ("update", "compute", 0, 50 * 10**9),
        ("exchange", "move", 0, 50 * 10**9),
    ]
    assert own_seconds(span) == 4.0


def run(tmp_path, capsys, name, *flags):
    words = [*" ".join(flags).split(), "--runs-dir", str(tmp_path), "--name", name]
    assert main(["train", "--json", *words]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out.splitlines()[-1]), RunFolder(tmp_path / name)


def pretend_rank_1_is_slow(monkeypatch):
    """Threads of workers are called after their ranks."""
    monkeypatch.setattr(
        balance_module,
        "own_seconds",
        lambda span: 3.0 if threading.current_thread().name == "rank 1" else 1.0,
    )


@pytest.mark.parametrize("strategy", ["naive", "ddp"])
def test_every_sample_still_comes_once_per_epoch(tmp_path, capsys, monkeypatch, strategy):
    monkeypatch.chdir(HERE)
    pretend_rank_1_is_slow(monkeypatch)
    flags = f"--strategy {strategy} --workers 2 --launcher threads --epochs 6 --batch-size 32 --balance"
    _, folder = run(tmp_path, capsys, "run", FLAGS, flags)
    steps = entries_of(folder.path)
    for epoch in range(6):
        once = sum(steps[4 * epoch : 4 * (epoch + 1)]).sum(0)
        assert torch.equal(once, torch.ones(SAMPLES, dtype=torch.float64))
    shares = [event["shares"] for event in read_events(folder.events()) if event["event"] == "shares"]
    assert shares, "the shares must have changed"
    assert shares[-1][0] > shares[0][0] > 16
    computed = [[int(count) for count in entries.sum(1)[:2]] for entries in steps]
    assert computed[0] == [16, 16]
    assert computed[12] == shares[0], "the first whole batch after step 10"


TINY = "--data synthetic --data.samples 100 --data.shape 1,4,4 --data.classes 3 --model mlp --model.hidden 8 "
TINY += "--batch-size 32 --epochs 6 --threads 1 --device cpu --optimizer sgd --momentum 0.9"


def test_the_weights_are_those_of_one_machine(tmp_path, capsys, monkeypatch):
    pretend_rank_1_is_slow(monkeypatch)
    flags = "--strategy naive --workers 2 --launcher threads --balance"
    result, folder = run(tmp_path, capsys, "balanced", TINY, flags)
    expected, alone = run(tmp_path, capsys, "alone", TINY)
    assert any(event["event"] == "shares" for event in read_events(folder.events()))
    assert result["final_loss"] == pytest.approx(expected["final_loss"], rel=1e-5)
    weights = load_file(alone.model)
    for name, tensor in load_file(folder.model).items():
        torch.testing.assert_close(tensor, weights[name], rtol=1e-4, atol=1e-6)


def test_a_stated_share_is_taken_from_the_beginning(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(HERE)
    flags = "--strategy naive --workers 3 --launcher threads --epochs 1 --batch-size 32"
    _, folder = run(tmp_path, capsys, "run", FLAGS, flags, "--bottleneck rank=1,share=0.75")
    steps = entries_of(folder.path)
    assert [int(count) for count in steps[0].sum(1)[:3]] == [4, 24, 4]
    assert torch.equal(sum(steps).sum(0), torch.ones(SAMPLES, dtype=torch.float64))
