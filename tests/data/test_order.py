import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal.data.order import epoch_order, even_shares, step_indices, worker_indices


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


@given(st.integers(1, 100), st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any), st.data())
def test_however_a_step_is_shared_it_has_the_same_samples_in_the_same_order(num_samples, shares, data):
    consumed = data.draw(st.integers(0, num_samples))
    order = epoch_order(num_samples, 0, 0)
    parts = [worker_indices(order, consumed, shares, rank) for rank in range(len(shares))]
    step = step_indices(order, consumed, sum(shares))
    assert torch.equal(torch.cat(parts), step)
    if len(step) == sum(shares):
        assert [len(part) for part in parts] == shares


@given(st.integers(1, 100), st.integers(1, 30))
def test_the_steps_of_an_epoch_take_every_sample_once(num_samples, batch_size):
    order = epoch_order(num_samples, 1, 2)
    steps = [step_indices(order, consumed, batch_size) for consumed in range(0, num_samples, batch_size)]
    assert torch.equal(torch.cat(steps), order)


def test_a_short_last_step_is_shared_in_proportion():
    order = torch.arange(106)
    assert [len(worker_indices(order, 100, (16, 16, 16), rank)) for rank in range(3)] == [2, 2, 2]
