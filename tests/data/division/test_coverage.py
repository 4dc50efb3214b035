import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal.data.division import Sampled
from shoal.data.division.coverage import expected_coverage_of_sampling, survey
from shoal.data.division.partition import PARTITIONS, divide


@pytest.mark.parametrize("name", PARTITIONS)
def test_a_partition_covers_everything_once(name):
    labels = torch.arange(100) % 5
    options = {"speeds": (1, 2, 3)} if name == "speed" else {}
    seen = survey(divide(name, 100, 3, labels=labels, **options), 100, labels)
    assert (seen.coverage, seen.overlap, seen.sentence()) == (1.0, 0.0, "")
    assert sum(seen.per_worker) == 100
    assert seen.histogram.sum(dim=0).tolist() == seen.whole.tolist() == [20] * 5


@given(st.integers(1, 40), st.lists(st.lists(st.integers(0, 39), max_size=30), min_size=1, max_size=4))
def test_coverage_and_overlap_count_samples_and_not_draws(num_samples, lists):
    lists = [[index % num_samples for index in worker] for worker in lists]
    seen = survey([torch.tensor(worker, dtype=torch.int64) for worker in lists], num_samples)
    owners = [sum(index in worker for worker in lists) for index in range(num_samples)]
    assert seen.coverage == sum(number > 0 for number in owners) / num_samples
    assert seen.overlap == sum(number > 1 for number in owners) / num_samples
    assert seen.per_worker == tuple(map(len, lists))


def test_what_is_wrong_is_said_in_one_line():
    seen = survey([torch.tensor([0, 1, 1]), torch.tensor([1])], 3)
    assert (
        seen.sentence() == "seen by no worker: 1 of 3 samples; seen by more than one worker: 1 of 3 samples"
    )
    twice = survey([torch.arange(3), torch.arange(3)], 3)
    assert twice.sentence() == "seen by more than one worker: 3 of 3 samples"


def test_the_histogram_goes_by_label_and_skew_is_the_part_that_has_the_wrong_one():
    labels = torch.tensor([7, 7, 3, 3])
    seen = survey(
        [torch.tensor([0, 1]), torch.tensor([2, 0]), torch.tensor([], dtype=torch.int64)], 4, labels
    )
    assert seen.labels == (3, 7)
    assert seen.histogram.tolist() == [[0, 2], [1, 1], [0, 0]]
    assert seen.skew[:2] == (0.5, 0.0)
    assert math.isnan(seen.skew[2])


def test_without_labels_there_is_no_skew():
    seen = survey([torch.tensor([0])], 1)
    assert (seen.labels, seen.histogram.shape) == ((), (1, 0))
    assert math.isnan(seen.skew[0])


def test_sampling_covers_what_is_expected():
    division = Sampled(20_000, seed=0, size=4)
    seen = survey([division.step(0, 0, 20_000, rank) for rank in range(4)], 20_000)
    assert seen.coverage == pytest.approx(expected_coverage_of_sampling(20_000, 20_000), abs=0.005)
    assert seen.overlap > 0.1
