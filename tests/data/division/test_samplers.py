"""Samplers in a plain torch DataLoader: shares are exact, epochs differ, nothing global is touched."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data import DistributedSampler as TorchSampler

from shoal.data.division.samplers import DistributedSampler, PartitionSampler, RandomSampler
from shoal.errors import ConfigError, DataError

SAMPLERS = [DistributedSampler, PartitionSampler, RandomSampler]
EXACT = [DistributedSampler, PartitionSampler]


def data_of(num_samples):
    return TensorDataset(torch.arange(num_samples), torch.arange(num_samples) % 3)


def world_of(kind, num_samples, size, **options):
    data = data_of(num_samples)
    return [kind(data, num_replicas=size, rank=rank, **options) for rank in range(size)]


@pytest.mark.parametrize("kind", EXACT)
@given(st.integers(1, 60), st.integers(1, 8), st.booleans(), st.integers(0, 3))
def test_every_sample_once_without_padding_and_without_dropping(kind, num_samples, size, shuffle, epoch):
    size = min(size, num_samples)
    samplers = world_of(kind, num_samples, size, shuffle=shuffle)
    for sampler in samplers:
        sampler.set_epoch(epoch)
    assert sorted(index for sampler in samplers for index in sampler) == list(range(num_samples))


@pytest.mark.parametrize("kind", SAMPLERS)
@given(st.integers(1, 60), st.integers(1, 8))
def test_the_length_is_what_is_given_and_every_worker_knows_all_counts(kind, num_samples, size):
    size = min(size, num_samples)
    samplers = world_of(kind, num_samples, size)
    counts = tuple(len(list(sampler)) for sampler in samplers)
    assert all(sampler.counts == counts and len(sampler) == counts[sampler.rank] for sampler in samplers)
    assert sum(counts) == num_samples
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("kind", SAMPLERS)
def test_epochs_differ_and_repeat(kind):
    first, other = world_of(kind, 50, 2)[0], world_of(kind, 50, 2)[0]
    orders = []
    for epoch in (0, 1, 0):
        first.set_epoch(epoch)
        orders.append(list(first))
    assert orders[0] == orders[2] == list(other)
    assert orders[0] != orders[1]


@pytest.mark.parametrize("kind", SAMPLERS)
def test_torchs_random_state_is_neither_read_nor_moved(kind):
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    before = list(world_of(kind, 30, 2)[1])
    assert torch.equal(state, torch.random.get_rng_state())
    torch.manual_seed(2)
    assert list(world_of(kind, 30, 2)[1]) == before


@pytest.mark.parametrize("kind", SAMPLERS)
def test_in_a_data_loader_the_workers_batches_have_the_sizes_that_step_sizes_tells(kind):
    data, batch_size = data_of(23), 4
    samplers = [kind(data, 3, rank) for rank in range(3)]
    loaders = [DataLoader(data, batch_size=batch_size, sampler=sampler) for sampler in samplers]
    sizes = [[len(numbers) for numbers, _ in loader] for loader in loaders]
    steps = [
        sum(worker[step] for worker in sizes if step < len(worker)) for step in range(max(map(len, sizes)))
    ]
    assert samplers[0].step_sizes(batch_size) == tuple(steps)
    assert sum(steps) == 23


def test_step_sizes_of_uneven_parts_go_on_while_one_worker_has_samples():
    sampler = PartitionSampler(data_of(10), 2, 0, by="contiguous", sizes=(7, 3))
    assert sampler.step_sizes(2) == (4, 3, 2, 1)


@given(st.integers(1, 60), st.integers(1, 8))
def test_with_drop_last_it_is_torchs_peer(num_samples, size):
    size = min(size, num_samples)
    data = data_of(num_samples)
    for rank in range(size):
        ours = DistributedSampler(data, size, rank, shuffle=False, drop_last=True)
        torchs = TorchSampler(data, size, rank, shuffle=False, drop_last=True)
        assert list(ours) == list(torchs)
        assert len(ours) == len(torchs)


def test_where_torch_repeats_a_sample_ours_does_not():
    data = data_of(5)
    torchs = [index for rank in range(2) for index in TorchSampler(data, 2, rank, shuffle=False)]
    ours = [index for rank in range(2) for index in DistributedSampler(data, 2, rank, shuffle=False)]
    assert (len(torchs), len(ours)) == (6, 5)


def test_a_partition_sampler_goes_by_any_rule():
    samplers = world_of(PartitionSampler, 90, 3, by="label")
    assert all(len({index % 3 for index in sampler}) == 1 for sampler in samplers)
    uneven = world_of(PartitionSampler, 90, 3, by="dirichlet", alpha=0.2, seed=3)
    assert len(set(uneven[0].counts)) == 3


def test_without_shuffling_a_part_comes_as_it_is():
    assert list(PartitionSampler(data_of(6), 2, 1, by="contiguous", shuffle=False)) == [3, 4, 5]


def test_random_sampling_repeats_some_and_misses_some():
    samplers = world_of(RandomSampler, 3000, 3)
    seen = [index for sampler in samplers for index in sampler]
    assert len(seen) == 3000
    assert len(set(seen)) / 3000 == pytest.approx(0.632, abs=0.03)
    assert len(list(RandomSampler(data_of(10), 2, 0, draws=101))) == 51


@pytest.mark.parametrize("kind", SAMPLERS)
def test_the_place_is_found_where_torchrun_puts_it(kind, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    sampler = kind(data_of(9))
    assert (sampler.rank, sampler.num_replicas) == (1, 3)
    assert list(sampler) == list(kind(data_of(9), 3, 1))
    assert kind(data_of(9), 2, 0).num_replicas == 2  # what is given counts


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ((None, None), "RANK and WORLD_SIZE are not set"),
        ((2, None), "rank is missing"),
        ((None, 0), "num_replicas is missing"),
        ((2, 2), "rank 2 is out of range for 2 workers"),
        ((2, -1), "rank -1 is out of range for 2 workers"),
        ((11, 0), "10 samples are too few for 11 workers"),
    ],
)
@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_place_that_cannot_be_is_one_sentence(kind, place, sentence, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(ConfigError, match=sentence):
        kind(data_of(10), *place)


def test_a_data_set_without_length_and_draws_below_one_are_refused():
    with pytest.raises(DataError, match="list_iterator cannot be divided"):
        DistributedSampler(iter([1, 2]), 2, 0)
    with pytest.raises(ConfigError, match="≥ 1 or none, got 0"):
        RandomSampler(data_of(10), 2, 0, draws=0)
