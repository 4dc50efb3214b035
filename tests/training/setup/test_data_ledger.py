"""Every sample exactly once per epoch: decided by a ledger that the weights keep (`sample_ledger.py`)."""

import json
from pathlib import Path

import pytest
import torch
from sample_ledger import FLAGS, SAMPLES, entries_of

from shoal.cli.main import main
from shoal.data.division.order import epoch_order, step_indices

HERE = Path(__file__).parents[1]
STRATEGIES = ["naive", "ddp", "dp"]
BATCH = 32
EPOCH = 4  # steps: 32, 32, 32 and the 4 that are left


@pytest.fixture(autouse=True)
def model_importable(monkeypatch):
    monkeypatch.chdir(HERE)  # where the model is; processes that a launcher starts inherit it


def train(capsys, folder, *words, code=0):
    is_new = "--resume" not in words[0]
    where = ["--runs-dir", str(folder), "--name", "run"] if is_new else ["--trust-code"]
    assert main(["train", "--json", *" ".join(words).split(), *where]) == code, capsys.readouterr().err
    out = capsys.readouterr().out
    return json.loads(out.splitlines()[-1]) if code == 0 else None


def assert_exactly_once(steps):
    """The steps are one epoch: each sample once, with one of the workers."""
    assert torch.equal(sum(steps).sum(0), torch.ones(SAMPLES, dtype=torch.float64))


def assert_batches_of_one_machine(steps, epoch, consumed=0, seed=0):
    """Each step took the very samples that it would have on one machine."""
    order = epoch_order(SAMPLES, seed, epoch)
    for entries in steps:
        taken = set(entries.sum(0).nonzero().flatten().tolist())
        assert taken == set(step_indices(order, consumed, BATCH).tolist())
        consumed += len(taken)


@pytest.mark.parametrize(
    ("strategy", "workers"),
    [("naive", 1), ("naive", 3), ("ddp", 2), ("ddp", 8), ("dp", 1), ("dp", 3), ("dp", 8)],
)
def test_once_per_epoch_and_all_workers_have_their_part(tmp_path, capsys, strategy, workers):
    flags = f"--strategy {strategy} --workers {workers} --launcher threads --epochs 2 --batch-size {BATCH}"
    train(capsys, tmp_path, FLAGS, flags)
    steps = entries_of(tmp_path / "run")
    assert len(steps) == 2 * EPOCH
    for epoch in range(2):
        part = steps[epoch * EPOCH : (epoch + 1) * EPOCH]
        assert_exactly_once(part)
        assert_batches_of_one_machine(part, epoch)
    each = sum(steps).sum(1)[:workers]
    assert all(count > 0 for count in each), "a worker never had anything to do"
    assert sum(steps)[workers:].sum() == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_once_per_epoch_when_a_batch_goes_through_in_parts(tmp_path, capsys, strategy):
    flags = f"--strategy {strategy} --workers 3 --launcher threads --epochs 1 --batch-size {BATCH} --micro-batch 5"
    train(capsys, tmp_path, FLAGS, flags)
    assert_exactly_once(entries_of(tmp_path / "run"))


@pytest.mark.parametrize(
    ("strategy", "route"),
    [(strategy, (2, 3, 1)) for strategy in STRATEGIES] + [("ddp", (3, 2, 5)), ("dp", (1, 4, 2))],
)
def test_resumed_twice_in_one_epoch_each_time_with_other_workers(tmp_path, capsys, strategy, route):
    flags = f"--strategy {strategy} --launcher threads --epochs 1 --batch-size {BATCH}"
    first, second, third = route
    train(capsys, tmp_path, FLAGS, flags, f"--workers {first} --steps 1")
    resume = f"--resume {tmp_path / 'run'}"
    train(capsys, tmp_path, resume, f"--workers {second} --steps 3")
    train(capsys, tmp_path, resume, f"--workers {third} --steps 4")
    steps = entries_of(tmp_path / "run")
    assert_exactly_once(steps)
    assert_batches_of_one_machine(steps, epoch=0)
    workers_of = [int((entries.sum(1) > 0).sum()) for entries in steps]
    assert workers_of == [first, second, second, min(third, SAMPLES % BATCH)]


def test_resumed_under_another_strategy(tmp_path, capsys):
    flags = f"--launcher threads --epochs 1 --batch-size {BATCH}"
    train(capsys, tmp_path, FLAGS, flags, "--strategy naive --workers 2 --steps 1")
    for steps, way in ((2, "dp --workers 3"), (3, "ddp --workers 4"), (4, "single --workers 1")):
        train(capsys, tmp_path, f"--resume {tmp_path / 'run'}", f"--steps {steps} --strategy {way}")
    assert_exactly_once(entries_of(tmp_path / "run"))


@pytest.mark.parametrize("strategy", ["ddp", "dp"])
def test_a_worker_is_killed_and_others_go_on(tmp_path, capsys, strategy):
    """The step in which it died is made again, by all; its half of it, before, has left no trace."""
    flags = f"--strategy {strategy} --workers 2 --epochs 1 --batch-size {BATCH}"
    code = main(
        [
            "train",
            *f"{FLAGS} {flags} --model.kill 1 --model.at 3".split(),
            "--runs-dir",
            str(tmp_path),
            "--name",
            "run",
        ]
    )
    said = capsys.readouterr().err
    assert code != 0
    assert "rank 1" in said
    assert "SIGKILL" in said
    assert len(entries_of(tmp_path / "run")) == 2
    train(capsys, tmp_path, f"--resume {tmp_path / 'run'}", "--workers 3 --launcher threads")
    steps = entries_of(tmp_path / "run")
    assert_exactly_once(steps)
    assert_batches_of_one_machine(steps, epoch=0)


PARTITIONS = ["random", "contiguous", "hash", "stratified", "label", "dirichlet"]


@pytest.mark.parametrize("partition", PARTITIONS)
def test_workers_that_own_samples_train_on_theirs_once_per_epoch(tmp_path, capsys, partition):
    strategy = STRATEGIES[PARTITIONS.index(partition) % 2]
    flags = f"--partition {partition} --strategy {strategy} --workers 3 --launcher threads"
    train(capsys, tmp_path, FLAGS, flags, f"--epochs 2 --batch-size {BATCH}")
    steps = entries_of(tmp_path / "run")
    first, second = steps[:EPOCH], steps[EPOCH:]
    assert_exactly_once(first)
    assert_exactly_once(second)
    assert torch.equal(sum(first), sum(second)), "a sample has changed its owner"
    assert [int(entries.sum()) for entries in steps] == [32, 32, 32, 4] * 2


@pytest.mark.parametrize("partition", PARTITIONS)
def test_they_are_resumed_in_mid_epoch_with_other_workers(tmp_path, capsys, partition):
    flags = f"--partition {partition} --strategy ddp --launcher threads --epochs 2 --batch-size {BATCH}"
    train(capsys, tmp_path, FLAGS, flags, "--workers 2 --steps 2")
    resume = f"--resume {tmp_path / 'run'}"
    train(capsys, tmp_path, resume, "--workers 3 --steps 3")
    train(capsys, tmp_path, resume, "--workers 1 --steps 8")
    steps = entries_of(tmp_path / "run")
    assert_exactly_once(steps[:EPOCH])
    assert_exactly_once(steps[EPOCH:])


def test_the_ledger_can_fail(tmp_path, capsys):
    """Draws with replacement are no partition: the ledger shows samples that came twice, and some that never did."""
    flags = "--partition sampling --strategy naive --workers 2 --launcher threads --epochs 1"
    train(capsys, tmp_path, FLAGS, flags, f"--batch-size {BATCH}")
    times = sum(entries_of(tmp_path / "run")).sum(0)
    assert times.sum() == SAMPLES
    assert {0, 1, 2} <= set(times.tolist())


def test_more_workers_than_samples_of_a_batch(tmp_path, capsys):
    for strategy in STRATEGIES:
        folder = tmp_path / strategy
        flags = f"--strategy {strategy} --workers 8 --launcher threads --epochs 1 --batch-size 3 --steps 5"
        train(capsys, folder, FLAGS, flags)
        steps = entries_of(folder / "run")
        assert [int(entries.sum()) for entries in steps] == [3] * 5
        assert sum(steps).sum(0).max() == 1
