"""The nearest guess: the field's own words are known, and a misleading guess is none."""

import pytest

from shoal.cli.main import all_commands
from shoal.cli.train import TrainFlags
from shoal.config.flags import flags_of
from shoal.config.read import known_flags
from shoal.nearest import SYNONYMS, nearest

TRAIN = [*known_flags(), *(flag.name for flag in flags_of(TrainFlags))]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("--learning-rate", "--lr"),
        ("--batch", "--batch-size"),
        ("--bs", "--batch-size"),
        ("--per_device_train_batch_size", "--batch-size"),
        ("--num-workers", "--workers"),
        ("--nproc", "--workers"),
        ("--nproc_per_node", "--workers"),
        ("--epoch", "--epochs"),
        ("--max_epochs", "--epochs"),
        ("--optim", "--optimizer"),
        ("--dataset", "--data"),
        ("--backend", "--group"),
        ("--max-grad-norm", "--clip-norm"),
        ("--resume-from-checkpoint", "--resume"),
        ("--init-method", "--master"),
        ("--beta1", "--optimizer.beta1"),
        ("--optimizer.learning_rate", "--optimizer.lr"),
        ("--modle", "--model"),
        ("-lr", "--lr"),
    ],
)
def test_flags_of_other_tools_lead_to_ours(written, meant):
    assert nearest(written, TRAIN) == meant


@pytest.mark.parametrize(
    "written", ["--foo", "--optimizer.foo", "--rdzv-id", "--deepspeed", "--fsdp", "--shuffle"]
)
def test_no_guess_is_better_than_a_misleading_one(written):
    assert nearest(written, TRAIN) is None


def test_commands_and_values():
    assert nearest("version", [*all_commands(), "--version"]) == "--version"
    assert nearest("version", all_commands()) is None
    assert nearest("eval", all_commands()) == "evaluate"
    assert nearest("gpu", ["auto", "cpu", "cuda"]) == "cuda"
    assert nearest("SGD", ["sgd", "gd"]) == "sgd"
    assert nearest("allreduce", ["all_reduce", "reduce"]) == "all_reduce"


def test_every_synonym_is_written_as_it_is_looked_up():
    for words in SYNONYMS.values():
        assert words == words.lower()
        assert "_" not in words
