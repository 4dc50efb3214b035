"""Divisions of a step: the ledger of samples, and that nothing but (seed, epoch, consumed) decides."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.sections.data import (
    ContiguousConfig,
    DirichletConfig,
    GlobalConfig,
    HashConfig,
    LabelConfig,
    RandomConfig,
    SamplingConfig,
    SpeedConfig,
    StratifiedConfig,
)
from shoal.config.sections.values import Custom
from shoal.data.division.order import epoch_order
from shoal.data.division.partition import divide
from shoal.data.division.steps import Global, Parted, Sampled, build_division, turns
from shoal.errors import ConfigError

SIZES = st.lists(st.integers(0, 30), min_size=1, max_size=6).filter(any)


def parted(sizes, seed=0):
    owned = torch.randperm(sum(sizes), generator=torch.Generator().manual_seed(5))
    return Parted(owned.split(sizes), seed)


def make(kind, num_samples, size):
    """A division of each kind; the parts of one that owns are uneven, and one of them may be empty."""
    if kind == "global":
        return Global(num_samples, seed=3, size=size)
    if kind == "sampled":
        return Sampled(num_samples, seed=3, size=size)
    sizes = (
        [num_samples // 2, *[0] * (size - 2), num_samples - num_samples // 2] if size > 1 else [num_samples]
    )
    return parted(sizes, seed=3)


KINDS = ("global", "parted", "sampled")
WORLD = (st.integers(1, 80), st.integers(1, 6), st.integers(1, 90))


def walk(division, epoch, batch_size):
    """Each step of an epoch: consumed, and the indices of every worker."""
    for consumed in range(0, division.num_samples, batch_size):
        yield consumed, [division.step(epoch, consumed, batch_size, rank) for rank in range(division.size)]


@pytest.mark.parametrize("kind", KINDS)
@given(*WORLD)
def test_counts_say_how_many_samples_every_worker_has_and_add_up_to_the_step(
    kind, num_samples, size, batch_size
):
    division = make(kind, num_samples, size)
    assert (division.num_samples, division.size) == (num_samples, size)
    for consumed, shares in walk(division, 1, batch_size):
        counts = division.counts(consumed, batch_size)
        assert [len(share) for share in shares] == list(counts)
        assert sum(counts) == min(batch_size, num_samples - consumed)


@pytest.mark.parametrize("kind", KINDS)
@given(*WORLD)
def test_one_worker_that_follows_the_order_sees_the_same_steps(kind, num_samples, size, batch_size):
    division = make(kind, num_samples, size)
    alone = Global(num_samples, seed=0, size=1, order=division.order)
    for consumed, shares in walk(division, 2, batch_size):
        together = torch.cat(shares).sort().values
        assert torch.equal(together, alone.step(2, consumed, batch_size, 0).sort().values)


@pytest.mark.parametrize("kind", ["global", "parted"])
@given(*WORLD)
def test_every_sample_is_used_exactly_once_per_epoch(kind, num_samples, size, batch_size):
    division = make(kind, num_samples, size)
    used = torch.cat([share for _, shares in walk(division, 0, batch_size) for share in shares])
    assert torch.equal(used.sort().values, torch.arange(num_samples))


@pytest.mark.parametrize("kind", KINDS)
@given(st.integers(2, 80), st.integers(1, 5), st.data())
def test_resuming_needs_consumed_alone_and_the_batch_size_may_change(kind, num_samples, size, data):
    cuts = sorted({0, *data.draw(st.lists(st.integers(0, num_samples), max_size=5)), num_samples})
    order = make(kind, num_samples, size).order(4)
    for start, end in pairwise(cuts):
        # A fresh division for every step: nothing is remembered from the one before.
        division = make(kind, num_samples, size)
        shares = [division.step(4, start, end - start, rank) for rank in range(size)]
        assert torch.equal(torch.cat(shares).sort().values, order[start:end].sort().values)


@pytest.mark.parametrize("kind", KINDS)
def test_epochs_differ_and_repeat(kind):
    first, second, again = (make(kind, 60, 3).step(epoch, 0, 30, 0).tolist() for epoch in (0, 1, 0))
    assert first == again
    assert first != second


def test_a_global_step_is_that_of_one_machine():
    division = Global(100, seed=2, size=3)
    steps = [torch.cat(shares) for _, shares in walk(division, 1, 16)]
    assert torch.equal(torch.cat(steps), epoch_order(100, seed=2, epoch=1))


@given(st.lists(st.floats(0, 10), min_size=3, max_size=3).filter(any), st.integers(0, 99))
def test_other_shares_change_who_computes_and_never_what(shares, consumed):
    division = Global(100, seed=2, size=3)
    before = torch.cat([division.step(0, consumed, 16, rank) for rank in range(3)])
    division.shares = shares
    after = [division.step(0, consumed, 16, rank) for rank in range(3)]
    assert torch.equal(torch.cat(after), before)
    assert tuple(len(part) for part in after) == division.counts(consumed, 16)


def test_shares_are_kept_in_proportion_in_a_short_last_step():
    division = Global(106, seed=0, size=3)
    division.shares = (32, 16, 16)
    assert division.counts(0, 100) == (50, 25, 25)
    assert division.counts(100, 100) == (3, 2, 1)


@pytest.mark.parametrize(
    ("shares", "sentence"), [((1, 2), "2 shares for 3 workers"), ((1, -1, 1), "numbers ≥ 0")]
)
def test_shares_that_cannot_be_are_refused_and_the_old_ones_stay(shares, sentence):
    division = Global(10, seed=0, size=3)
    with pytest.raises(ConfigError, match=sentence):
        division.shares = shares
    assert division.counts(0, 9) == (3, 3, 3)


def test_a_worker_takes_only_what_it_owns_in_an_order_of_its_own():
    parts = divide("random", 90, 3)
    division = Parted(parts, seed=0)
    for rank, part in enumerate(parts):
        own = torch.cat([division.step(0, consumed, 9, rank) for consumed in range(0, 90, 9)])
        assert torch.equal(own.sort().values, part.sort().values)
        assert own.tolist() != part.tolist()


@given(SIZES, st.integers(1, 50))
def test_parts_end_together(sizes, batch_size):
    division = parted(sizes)
    used = torch.zeros(len(sizes))
    for consumed in range(0, sum(sizes), batch_size):
        used += torch.tensor(division.counts(consumed, batch_size))
        done = min(consumed + batch_size, sum(sizes)) / sum(sizes)
        # Everyone has done the same part of its own, to within a turn of each of the others.
        assert (used - done * torch.tensor(sizes)).abs().max() <= len(sizes)
    assert used.tolist() == sizes


def test_even_parts_take_turns_one_after_the_other():
    assert turns([3, 3, 2]).tolist() == [0, 1, 2, 0, 1, 2, 0, 1]


def test_even_the_smallest_batch_has_samples():
    """A batch of fewer samples than workers must not make a step without any."""
    division = parted([25] * 8)
    assert all(sum(division.counts(consumed, 1)) == 1 for consumed in range(200))


def test_a_rest_of_an_epoch_can_be_taken_over_by_other_workers():
    four = parted([10, 20, 5, 25])
    begun = torch.cat([four.step(0, 0, 24, rank) for rank in range(4)])
    two = Global(60, seed=0, size=2, order=four.order)
    rest = torch.cat([two.step(0, consumed, 12, rank) for consumed in (24, 36, 48) for rank in range(2)])
    assert torch.equal(torch.cat([begun, rest]).sort().values, torch.arange(60))


def test_sampling_sees_about_two_thirds_and_draws_differ_between_workers():
    division = Sampled(10_000, seed=0, size=4)
    order = division.order(0)
    assert len(order) == 10_000
    assert len(order.unique()) / 10_000 == pytest.approx(0.632, abs=0.01)
    own = [division.step(0, 0, 10_000, rank) for rank in range(4)]
    assert [len(draws) for draws in own] == [2500] * 4
    assert len({tuple(draws[:10].tolist()) for draws in own}) == 4


CONFIGS = [
    GlobalConfig(),
    SamplingConfig(),
    RandomConfig(),
    ContiguousConfig(),
    HashConfig(),
    StratifiedConfig(),
    LabelConfig(),
    DirichletConfig(alpha=1.0),
    SpeedConfig(speeds=(1.0, 2.0, 1.0)),
    Custom("shoal.data.division.partition:random_partition"),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_every_configuration_can_be_built(config):
    division = build_division(config, 90, size=3, seed=1, labels=torch.arange(90) % 9)
    assert (division.num_samples, division.size) == (90, 3)
    steps = [division.step(0, consumed, 20, rank) for consumed in range(0, 90, 20) for rank in range(3)]
    assert len(torch.cat(steps)) == 90
    if config.name != "sampling":
        assert len(torch.cat(steps).unique()) == 90


def test_more_workers_than_samples_is_refused_when_parts_are_owned():
    with pytest.raises(ConfigError, match="3 samples are too few for 4 workers"):
        build_division(RandomConfig(), 3, size=4, seed=0)
    assert build_division(GlobalConfig(), 3, size=4, seed=0).counts(0, 3) == (1, 1, 1, 0)
