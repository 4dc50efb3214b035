"""Samples that are read on demand: the same training as from memory, each sample once, errors that name the sample."""

import signal
from pathlib import Path

import own_samples
import pytest
import torch

from shoal.config.read import read
from shoal.config.sections.values import Custom
from shoal.data.load import load
from shoal.errors import DataError, WorkerError
from shoal.events.folder import RunFolder
from shoal.launch.training import by_threads
from shoal.training import worker
from shoal.training.observer import Silent

RUN = "--model mlp --model.hidden 8 --optimizer sgd --lr 0.1 --batch-size 16 --epochs 2 "
RUN += "--threads 1 --device cpu"


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own_samples.SEEN.clear()


def trained(data, flags="", observer=None, resumed=None, name=""):
    words = [*RUN.split(), f"--data=own_samples:{data}", *flags.split(), "--runs-dir=runs", f"--name={name}"]
    config = read(None, words)
    if config.launch.workers > 1:
        return by_threads(config, observer or Silent())
    return worker.run(config, observer, resumed=resumed)


def facts(result):
    return result.weights_sha256, result.final_loss, result.test_loss


STRATEGIES = [
    "",
    "--strategy ddp --workers 3",
    "--strategy zero --workers 2",
    "--strategy local --workers 2",
    "--strategy pipeline --workers 2 --micro-batch 4",
    "--strategy server --workers 2",
]


@pytest.mark.parametrize("loaders", [0, 2])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_computes_what_it_computes_from_memory(strategy, loaders):
    flags = strategy if "micro" in strategy else f"{strategy} --micro-batch 5"
    on_demand = trained("by_index", f"{flags} --data.loaders {loaders}")
    assert facts(on_demand) == facts(trained("in_memory", flags))


@pytest.mark.parametrize("data", ["with_draws", "in_a_row_with_draws"])
def test_a_sample_draws_the_same_for_any_number_of_workers_and_loaders_and_anew_in_each_epoch(data):
    """The loss of a step is that of its samples, which are the same for one worker and for three."""
    one = trained(data, "--data.loaders 0 --data.outputs 3")
    for flags in ("--data.loaders 1", "--data.loaders 2"):
        assert facts(trained(data, f"{flags} --data.outputs 3")) == facts(one)
    invariant = "--data.outputs 3 --reduction invariant --micro-batch 4"
    two, alone = (
        trained(data, f"{invariant} --data.loaders 2 --workers {workers} --strategy {strategy}")
        for workers, strategy in ((2, "ddp"), (1, "single"))
    )
    assert facts(two) == facts(alone)


class SignalAt(Silent):
    def __init__(self, step):
        self.step = step

    def stepped(self, progress, loss):
        if progress.step == self.step:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("data", ["with_draws", "in_a_row_with_draws"])
def test_a_run_that_is_resumed_within_an_epoch_has_the_same_samples_and_draws(data):
    flags = "--data.outputs 3 --data.loaders 2"
    whole = trained(data, flags)
    stopped = trained(data, flags, SignalAt(6), name="stopped")
    assert (stopped.status, stopped.steps) == ("interrupted", 6)
    resumed = trained(data, flags, resumed=RunFolder(Path(stopped.run)), name="stopped")
    assert facts(resumed) == facts(whole)


def test_samples_differ_from_epoch_to_epoch_and_evaluations_do_not():
    data = load(Custom("own_samples:with_draws", (("loaders", 0),)))
    first, again, second = (data.training_batch(torch.arange(5), 0, epoch).inputs for epoch in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    evaluated = [data.batch(data.train, torch.arange(5)).inputs for _ in range(2)]
    assert torch.equal(*evaluated)


@pytest.mark.parametrize("data", ["by_index", "in_a_row"])
def test_workers_read_every_sample_once_in_each_epoch(data, monkeypatch):
    read = []
    from shoal.data.on_demand import read as reading

    real = reading._sample
    monkeypatch.setattr(
        reading,
        "_sample",
        lambda source, number, draw: read.append((draw, number)) or real(source, number, draw),
    )
    trained(data, "--data.loaders 0 --data.outputs 3 --workers 3 --strategy ddp --seed 5")
    for epoch in range(2):
        numbers = [number for draw, number in read if draw == (5, epoch)]
        assert sorted(numbers) == list(range(50))


def test_loaders_follow_the_shares_of_a_balanced_run():
    flags = "--strategy ddp --workers 2 --balance true --micro-batch 4"
    assert facts(trained("by_index", f"{flags} --data.loaders 2"))[0]


BAD = {
    "broken": "sample 17 cannot be read: KeyError: 'no such crop'",
    "reshaped": "the input of sample 17 has shape [9], and that of sample 0 [16]",
    "retyped": "sample 17 is float32, float32, and sample 0 is float32, int64",
    "misnumbered": "sample 17 has label 7, expected 0 to 2",
}


@pytest.mark.parametrize("loaders", [0, 2])
@pytest.mark.parametrize("sample", BAD)
def test_a_bad_sample_ends_the_run_with_one_sentence(sample, loaders):
    flags = f"--data.sample {sample} --data.outputs 3 --data.loaders {loaders}"
    with pytest.raises(DataError) as caught:
        trained("of_bad", flags)
    assert BAD[sample] in caught.value.message
    with pytest.raises(WorkerError, match=r"rank \d of 2: data own_samples:of_bad, train: .*sample 17"):
        trained("of_bad", f"{flags} --workers 2 --strategy ddp")


def test_an_iterable_data_set_has_one_order_and_an_end():
    with pytest.raises(DataError, match="ended after 50 samples, and its length is 55"):
        trained("too_short", "--data.loaders 0 --data.outputs 3")
    with pytest.raises(WorkerError, match="has one order alone"):
        trained(
            "in_a_row", "--data.loaders 0 --data.outputs 3 --partition random --workers 2 --strategy naive"
        )
    with pytest.raises(DataError, match="how many classes"):
        trained("in_a_row", "--data.loaders 0")


def test_a_part_is_held_out_as_from_memory():
    flags = "--validation 0.2 --data.loaders {} --micro-batch 8"
    in_memory = trained("in_memory", "--validation 0.2 --micro-batch 8")
    for loaders in (0, 2):
        on_demand = trained("by_index", flags.format(loaders))
        assert facts(on_demand) == facts(in_memory)
        assert on_demand.validation_loss == in_memory.validation_loss
