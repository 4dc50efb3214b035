import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.sections.data import DigitsConfig, SyntheticConfig
from shoal.data import load
from shoal.data.holdout import choose_stratified
from shoal.errors import ConfigError


@given(st.lists(st.integers(0, 5), min_size=2, max_size=80), st.data())
def test_every_stratum_gives_its_share_to_within_one(strata, data):
    strata = torch.tensor(strata)
    count = data.draw(st.integers(1, len(strata)))
    chosen = choose_stratified(strata, count, torch.Generator().manual_seed(0))
    assert len(chosen.unique()) == count
    fair = strata.bincount() * count / len(strata)
    given_by = strata[chosen].bincount(minlength=len(fair))
    assert (given_by - fair).abs().max() <= 1


def test_small_strata_do_not_take_from_a_large_one():
    strata = torch.tensor([0, 1, 2, 3, 5, 5, 5])
    chosen = choose_stratified(strata, 5, torch.Generator())
    assert strata[chosen].bincount(minlength=6)[5] == 2  # 5 · 3/7 = 2.14; rounding each stratum alone gives 1


def test_held_out_digits_are_stratified_and_no_longer_trained_on():
    whole, data = load(DigitsConfig()), load(DigitsConfig(validation=0.1))
    assert data.validation is not None
    assert data.validation.labels.bincount().tolist() == [100] * 10
    assert data.train.labels.bincount().tolist() == [900] * 10
    # Together they are the whole training set: the same bytes, none twice.
    together = torch.cat([data.train.inputs, data.validation.inputs]).flatten(1)
    assert torch.equal(together.unique(dim=0), whole.train.inputs.flatten(1).unique(dim=0))
    assert torch.equal(data.test.inputs, whole.test.inputs)


def test_the_held_out_part_depends_on_its_seed_alone():
    first, again, other = (load(DigitsConfig(validation=0.2), seed).validation for seed in (0, 0, 1))
    assert first is not None
    assert again is not None
    assert other is not None
    assert torch.equal(first.inputs, again.inputs)
    assert not torch.equal(first.inputs, other.inputs)


@pytest.mark.parametrize("task", ["regression", "text"])
def test_without_classes_it_is_drawn_evenly(task):
    shape = (16,) if task == "text" else (1, 4, 4)
    data = load(SyntheticConfig(task=task, shape=shape, samples=50, validation=0.3))
    assert data.validation is not None
    assert (len(data.train), len(data.validation)) == (35, 15)


@pytest.mark.parametrize("fraction", [0.01, 0.99])
def test_a_side_without_samples_is_refused(fraction):
    with pytest.raises(ConfigError, match="of 10 training samples leaves"):
        load(SyntheticConfig(samples=10, validation=fraction))


def test_only_so_many_samples_the_same_part_of_every_label():
    few = load(DigitsConfig(samples=500, validation=0.2))
    assert len(few.train) == 400
    assert few.train.labels.bincount().tolist() == [40] * 10
    assert few.validation.labels.bincount().tolist() == [10] * 10
    with pytest.raises(ConfigError, match="data.samples is 10,001, but digits has 10,000"):
        load(DigitsConfig(samples=10_001))
