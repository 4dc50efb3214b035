"""The selection by a sampled threshold is exact."""

import pytest
import torch

from shoal.codecs.sparse import SMALL, count, largest, sampled_threshold


@pytest.mark.parametrize("ratio", [0.001, 0.01, 0.1, 0.5, 1.0])
def test_the_selection_is_exact_on_large_gradients(ratio):
    x = torch.randn(2 * SMALL, generator=torch.Generator().manual_seed(0))
    k = count(ratio, x.numel())
    found = largest(x, k, seed=1)
    assert found.unique().numel() == k
    assert torch.equal(x[found].abs().sort().values, x.abs().sort().values[-k:])


def test_a_misleading_sample_changes_nothing():
    """All elements are equal but a few: every threshold from a sample is wrong."""
    x = torch.ones(2 * SMALL)
    x[:50] = 2
    assert set(largest(x, 50, seed=0).tolist()) == set(range(50))
    x = torch.zeros(2 * SMALL)
    x[7] = -1
    assert largest(x, 1, seed=0).tolist() == [7]


def test_the_sampled_threshold_is_near_the_quantile():
    magnitude = torch.rand(200_000, generator=torch.Generator().manual_seed(0))
    assert abs(sampled_threshold(magnitude, 0.1, seed=0).item() - 0.9) < 0.01
