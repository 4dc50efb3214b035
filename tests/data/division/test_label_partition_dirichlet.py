"""The draws have the moments of their distributions, far within what so many draws allow."""

import pytest
import torch

from shoal.data.division.label_partition import dirichlet, gamma

DRAWS = 40_000


@pytest.mark.parametrize("shape", [1.0, 1.3, 5.0])
def test_gamma_has_its_first_three_moments(shape):
    drawn = gamma(shape, (DRAWS,), torch.Generator().manual_seed(1))
    assert drawn.min() > 0
    # Mean and variance of Gamma(k) are k, its third central moment 2k.
    assert drawn.mean().item() == pytest.approx(shape, rel=0.03)
    assert drawn.var().item() == pytest.approx(shape, rel=0.06)
    assert ((drawn - shape) ** 3).mean().item() == pytest.approx(2 * shape, rel=0.25)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0, 10.0])
def test_dirichlet_has_its_mean_and_variance(alpha):
    width = 4
    rows = dirichlet(alpha, DRAWS, width, torch.Generator().manual_seed(2))
    torch.testing.assert_close(rows.sum(dim=1), torch.ones(DRAWS, dtype=torch.float64))
    assert rows.mean(dim=0).tolist() == pytest.approx([1 / width] * width, abs=0.01)
    variance = (1 / width) * (1 - 1 / width) / (width * alpha + 1)
    assert rows.var(dim=0).tolist() == pytest.approx([variance] * width, rel=0.05)


def test_draws_come_from_the_generator_alone():
    state = torch.random.get_rng_state()
    first, again = (dirichlet(0.3, 5, 3, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(state, torch.random.get_rng_state())
