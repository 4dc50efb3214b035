"""Samples that are read on demand: the same training as from memory, each sample once, errors that name the sample."""

import signal
import tempfile
from multiprocessing import current_process
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

RUN = "--optimizer sgd --lr 0.1 --batch-size 16 --epochs 2 "
RUN += "--threads 1 --device cpu"


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own_samples.SEEN.clear()


def trained(data, flags="", observer=None, resumed=None, name=""):
    model = "" if "--model" in flags else "--model mlp --model.hidden 8"
    words = [*RUN.split(), *model.split(), f"--data=own_samples:{data}", *flags.split()]
    words += ["--runs-dir=runs", f"--name={name}"]
    config = read(None, words)
    if config.launch.workers > 1:
        return by_threads(config, observer or Silent())
    return worker.run(config, observer, resumed=resumed)


def facts(result):
    return result.weights_sha256, result.final_loss, result.test_loss


NAMED = [("named_in_memory", ""), ("named_by_index", " --data.loaders 0")]
QUICK = [("", 0), ("", 2), ("--strategy ddp --workers 3", 2), ("--strategy zero --workers 2", 0)]
SLOWER = [
    ("--strategy zero --workers 2 --partition hash", 1),
    ("--strategy local --workers 2", 1),
    ("--strategy pipeline --workers 2 --micro-batch 4", 1),
    ("--strategy server --workers 2", 0),
    ("--strategy server --workers 2 --partition random", 1),
]
STRATEGIES = [*QUICK, *(pytest.param(*each, marks=pytest.mark.long) for each in SLOWER)]


@pytest.mark.parametrize(("strategy", "loaders"), STRATEGIES)
def test_every_strategy_computes_what_it_computes_from_memory(strategy, loaders):
    flags = strategy if "micro" in strategy else f"{strategy} --micro-batch 5"
    on_demand = trained("by_index", f"{flags} --data.loaders {loaders}")
    assert facts(on_demand) == facts(trained("in_memory", flags))


def test_samples_that_are_dictionaries_are_read_on_demand_too():
    flags = "--model own_samples:Net --loss own_samples:loss_of_named"
    in_memory = trained("named_in_memory", flags)
    for loaders in (0, 1):
        assert facts(trained("named_by_index", f"{flags} --data.loaders {loaders}")) == facts(in_memory)
    two = [trained(data, f"{flags} --strategy ddp --workers 2{more}") for data, more in NAMED]
    assert facts(two[0]) == facts(two[1])


@pytest.mark.parametrize("data", ["with_draws", "in_a_row_with_draws"])
def test_a_sample_draws_the_same_for_any_number_of_workers_and_loaders_and_anew_in_each_epoch(data):
    """The loss of a step is that of its samples, which are the same for one worker and for three."""
    one = trained(data, "--data.loaders 0 --data.outputs 3")
    assert facts(trained(data, "--data.loaders 2 --data.outputs 3")) == facts(one)
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


@pytest.mark.parametrize(("data", "flags"), [("in_memory", ""), ("by_index", "--data.loaders 0")])
def test_a_run_that_is_resumed_with_other_samples_says_so(data, flags, monkeypatch, recwarn):
    stopped = trained(data, flags, SignalAt(6), name="stopped")
    recwarn.clear()
    monkeypatch.setattr(own_samples, "INPUTS", own_samples.INPUTS.flip(0))
    trained(data, flags, resumed=RunFolder(Path(stopped.run)), name="stopped")
    assert ["train" in str(each.message) for each in recwarn if "began" in str(each.message)] == [True]


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


def test_a_model_with_dropout_draws_the_same_whoever_reads():
    flags = "--model own_samples:Dropping --data.loaders"
    assert facts(trained("with_draws", f"{flags} 0")) == facts(trained("with_draws", f"{flags} 2"))


@pytest.mark.long
def test_a_loader_process_that_is_killed_ends_the_run_with_one_sentence():
    with pytest.raises(DataError, match="a loader process ended before its work was done"):
        trained("of_bad", "--data.sample deadly --data.outputs 3 --data.loaders 2")


@pytest.mark.parametrize("error", [ConnectionResetError, FileNotFoundError, EOFError])
def test_a_loader_process_that_ends_while_it_hands_over_a_part_is_told_as_such(error, monkeypatch):
    """Torch raises what it sees of it: the memory of a part is fetched from the process that made it."""
    split = load(Custom("own_samples:by_index", (("loaders", 1),))).train

    def ended(_):
        raise error("reset by peer")

    monkeypatch.setattr("torch.utils.data.dataloader._MultiProcessingDataLoaderIter._next_data", ended)
    split.read_ahead(lambda: [torch.arange(4)])
    with pytest.raises(DataError, match="a loader process ended before its work was done: reset by peer"):
        split.read(torch.arange(4))
    split.close()


def test_a_loader_process_knows_the_folder_for_messages_when_it_begins(monkeypatch):
    """To look for it takes a lock, which a thread of another worker may hold while this process is forked."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(current_process(), "_config", {**current_process()._config, "tempdir": None})
    split = load(Custom("own_samples:that_know_a_folder", (("loaders", 1),))).train
    split.read_ahead(lambda: [torch.arange(4)])
    assert torch.equal(split.read(torch.arange(4)).inputs, torch.ones(4, 16))
    split.close()


def test_loaders_follow_a_plan_that_changes_and_the_worker_reads_what_is_not_planned():
    """As the shares of a balanced run do."""
    split = load(Custom("own_samples:by_index", (("loaders", 1),))).train

    def parts(*sizes):
        return lambda: torch.arange(sum(sizes)).split(sizes)

    own_samples.SEEN.clear()
    split.read_ahead(parts(4, 4, 4))
    assert torch.equal(split.read(torch.arange(4)).inputs, own_samples.INPUTS[:4])
    split.read_ahead(lambda: [torch.arange(4, 6), torch.arange(6, 11)])
    for planned in (torch.arange(4, 6), torch.arange(6, 11)):
        assert torch.equal(split.read(planned).inputs, own_samples.INPUTS[planned])
    assert own_samples.SEEN == []
    assert torch.equal(split.read(torch.tensor([30, 2])).inputs, own_samples.INPUTS[[30, 2]])
    assert own_samples.SEEN == [30, 2]
    split.close()


BAD = {
    "broken": "sample 17 cannot be read: KeyError: 'no such crop'",
    "reshaped": "the input of sample 17 has shape [9], and that of sample 0 [16]",
    "retyped": "the label of sample 17 is torch.float32, and that of sample 0 torch.int64",
    "misnumbered": "sample 17 has label 7, expected 0 to 2",
}


def test_a_label_that_the_labels_of_the_data_set_do_not_have_is_named():
    """They say that there are three classes, without --data.outputs."""
    with pytest.raises(DataError, match="sample 17 has label 7, expected 0 to 2"):
        trained("of_bad", "--data.sample misnumbered --data.loaders 0")


@pytest.mark.parametrize("loaders", [0, 1])
@pytest.mark.parametrize("sample", BAD)
def test_a_bad_sample_ends_the_run_with_one_sentence(sample, loaders):
    flags = f"--data.sample {sample} --data.outputs 3 --data.loaders {loaders}"
    with pytest.raises(DataError) as caught:
        trained("of_bad", flags)
    assert BAD[sample] in caught.value.message
    if sample != "broken":
        return
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


def test_an_iterable_data_set_may_have_its_labels_in_one_place():
    found = trained("in_a_row_with_labels", "--data.loaders 0")
    assert facts(found) == facts(trained("in_a_row", "--data.loaders 0 --data.outputs 3"))


def test_a_part_is_held_out_as_from_memory():
    flags = "--validation 0.2 --data.loaders {} --micro-batch 8"
    in_memory = trained("in_memory", "--validation 0.2 --micro-batch 8")
    for loaders in (0, 1):
        on_demand = trained("by_index", flags.format(loaders))
        assert facts(on_demand) == facts(in_memory)
        assert on_demand.validation_loss == in_memory.validation_loss
