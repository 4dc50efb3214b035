"""The wrong samplers are wrong in the way that is taught: what they cover is what the formula says."""

import pytest
import torch
from torch.utils.data import DataLoader

from shoal.data.division.coverage import survey
from shoal_labs.lab3.wrong_samplers import (
    OneWorkersRange,
    SeedPerRank,
    coverage_of_one_workers_range,
    coverage_of_seed_per_rank,
)

NUM_SAMPLES = 12_000


def seen_in(kind, size, epochs):
    lists = []
    for rank in range(size):
        sampler = kind(range(NUM_SAMPLES), num_replicas=size, rank=rank)
        lists.append([])
        for epoch in epochs:
            sampler.set_epoch(epoch)
            indices = list(sampler)
            assert len(indices) == len(sampler)
            lists[-1] += indices
    return survey([torch.tensor(indices) for indices in lists], NUM_SAMPLES)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_range_of_one_workers_length_never_sees_the_rest(size):
    seen = seen_in(OneWorkersRange, size, epochs=range(3))
    assert seen.coverage == pytest.approx(coverage_of_one_workers_range(size)) == 1 / size
    assert seen.overlap == seen.coverage  # and what is seen is seen by all


@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_seed_per_rank_misses_a_quarter_to_a_third_of_every_epoch(size):
    seen = seen_in(SeedPerRank, size, epochs=[1])
    assert seen.coverage == pytest.approx(coverage_of_seed_per_rank(size), abs=0.01)
    assert seen.overlap > 0.2
    assert sum(seen.per_worker) == NUM_SAMPLES  # nothing in the numbers of samples gives it away


@pytest.mark.parametrize("kind", [OneWorkersRange, SeedPerRank])
def test_alone_they_are_right_and_in_a_loader_they_look_it(kind):
    data = list(range(20))
    assert sorted(kind(data, num_replicas=1, rank=0)) == data
    assert len(DataLoader(data, batch_size=5, sampler=kind(data, num_replicas=2, rank=1))) == 2
    first, second = kind(data, 1, 0), kind(data, 1, 0)
    second.set_epoch(1)
    assert list(first) != list(second)
