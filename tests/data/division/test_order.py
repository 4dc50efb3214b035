from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal.data.division.order import (
    epoch_order,
    even_shares,
    part_order,
    sample_draws,
    shares_by_weight,
    step_indices,
    worker_indices,
)
from shoal.errors import ConfigError


@given(st.integers(1, 200), st.integers(), st.integers(0, 1000))
def test_an_epochs_order_is_a_permutation_that_depends_on_seed_and_epoch_alone(num_samples, seed, epoch):
    torch.manual_seed(epoch)  # the global state must not matter
    order = epoch_order(num_samples, seed, epoch)
    torch.rand(3)
    assert torch.equal(order, epoch_order(num_samples, seed, epoch))
    assert torch.equal(order.sort().values, torch.arange(num_samples))


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = {tuple(epoch_order(50, seed, epoch).tolist()) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25


def test_the_order_is_the_same_in_every_version():
    assert epoch_order(8, seed=0, epoch=0).tolist() == [2, 3, 4, 6, 0, 7, 5, 1]


@given(st.integers(0, 500), st.integers(1, 20))
def test_even_shares_use_up_the_batch_and_differ_by_one_at_most(batch_size, workers):
    shares = even_shares(batch_size, workers)
    assert (len(shares), sum(shares)) == (workers, batch_size)
    assert max(shares) - min(shares) <= 1


@given(st.integers(0, 500), st.lists(st.floats(0, 1e6), min_size=1, max_size=8).filter(any))
def test_shares_by_weight_use_up_the_batch_and_are_within_one_of_the_exact_share(count, weights):
    shares = shares_by_weight(count, weights)
    assert sum(shares) == count
    for share, weight in zip(shares, weights, strict=True):
        assert abs(share - count * Fraction(weight) / sum(map(Fraction, weights))) < 1


@given(st.integers(0, 500), st.integers(1, 20))
def test_equal_weights_are_even_shares(count, workers):
    assert shares_by_weight(count, (0.1,) * workers) == even_shares(count, workers)


def test_who_is_faster_gets_more_and_who_has_no_weight_gets_nothing():
    assert shares_by_weight(100, (3, 1, 0, 1)) == (60, 20, 0, 20)


@pytest.mark.parametrize("weights", [(), (0.0, 0.0), (1.0, -1.0), (1.0, float("nan")), (float("inf"), 1.0)])
def test_weights_that_cannot_be_are_refused(weights):
    with pytest.raises(ConfigError, match="weights must be numbers ≥ 0"):
        shares_by_weight(10, weights)


@given(st.integers(0, 100), st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_however_a_step_is_shared_it_has_the_same_samples_in_the_same_order(consumed, shares):
    order = epoch_order(200, 0, 0)
    parts = [worker_indices(order, consumed, shares, rank) for rank in range(len(shares))]
    assert torch.equal(torch.cat(parts), step_indices(order, consumed, sum(shares)))
    assert [len(part) for part in parts] == shares


@given(st.integers(1, 100), st.integers(1, 30))
def test_the_steps_of_an_epoch_take_every_sample_once(num_samples, batch_size):
    order = epoch_order(num_samples, 1, 2)
    steps = [step_indices(order, consumed, batch_size) for consumed in range(0, num_samples, batch_size)]
    assert torch.equal(torch.cat(steps), order)


def test_a_workers_part_is_shuffled_by_seed_epoch_and_rank_and_stays_its_part():
    part = torch.arange(100, 150)
    keys = [(seed, epoch, rank) for seed in (0, 1) for epoch in (0, 1) for rank in (0, 1)]
    orders = [part_order(part, *key) for key in keys]
    assert len({tuple(order.tolist()) for order in orders}) == len(keys)
    assert all(torch.equal(order.sort().values, part) for order in orders)


def test_draws_are_from_the_whole_set_with_replacement_and_differ_by_rank_and_epoch():
    draws = [sample_draws(50, 200, 0, epoch, rank) for epoch in (0, 1) for rank in (0, 1)]
    assert len({tuple(drawn.tolist()) for drawn in draws}) == 4
    assert all(drawn.min() >= 0 and drawn.max() < 50 and len(drawn.unique()) > 40 for drawn in draws)
