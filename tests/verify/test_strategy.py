"""Exact strategies equal `single`; a wrong one is named with step, rank, phase and tensor."""

import pytest

from shoal.config.read import from_tree, merge, read_flags
from shoal.errors import ConfigError
from shoal.verify.strategy import compare_strategy

SMALL = "--data synthetic --data.samples 60 --data.shape 1,4,4 --data.classes 3 --batch-size 13 --threads 1 "
SMALL += "--device cpu --steps 4 --epochs 1"


def outcome_of(folder, strategy, workers=2, more=""):
    shared = read_flags([*SMALL.split(), *more.split(), "--runs-dir", str(folder)])
    words = f"--strategy {strategy} --workers {workers} --launcher threads".split()
    several = from_tree(merge(shared, read_flags(words)))
    return compare_strategy(several, from_tree(merge(shared, read_flags(["--strategy=single"]))))


STRATEGIES = ["naive", "ddp", "dp", "onecopy", "zero", "zero --strategy.stage 1", "pipeline", "tensor"]
MLP = "--model mlp --optimizer adam"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_exact_strategy_equals_single(tmp_path, strategy):
    outcome = outcome_of(tmp_path, strategy, more=MLP)
    assert (outcome.finding, outcome.steps) == (None, 4)


@pytest.mark.long
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("more", ["--precision bf16", "--clip-norm 0.5", "--micro-batch 4"])
def test_an_exact_strategy_equals_single_with_other_settings(tmp_path, strategy, optimizer, more):
    workers = 2 if strategy == "tensor" else 3
    outcome = outcome_of(tmp_path, strategy, workers, f"--model mlp --optimizer {optimizer} {more}")
    assert (outcome.finding, outcome.steps) == (None, 4)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Twice", (0, "exchange", None, True)),
        ("Drifting", (2, "update", 1, True)),
        ("Decaying", (0, "update", None, True)),
        ("Signs", (0, "exchange", None, False)),
    ],
)
def test_a_difference_of_a_strategy_is_named(tmp_path, name, expected):
    found = outcome_of(tmp_path, f"wrong_strategies:{name}", more=MLP).finding
    assert (found.step, found.phase, found.rank, found.is_comparable) == expected
    assert found.size > found.tolerance


def test_batch_norm_of_shares_is_no_bug(tmp_path):
    found = outcome_of(tmp_path, "ddp", more="--model resnet18 --data.shape 3,8,8").finding
    assert (found.phase, found.is_comparable) == ("forward", False)


def test_strategies_whose_state_is_elsewhere_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="server keeps the model"):
        outcome_of(tmp_path, "server", more=MLP)
