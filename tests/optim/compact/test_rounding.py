"""Stochastic rounding: unbiased, to a neighbour, and the same however the elements are divided."""

import pytest
import torch

from shoal.optim.compact.rounding import random_bits, round_stochastically, rounding_key

MANY = 2**16


def rounded(values, key=7, first=0):
    out = torch.empty(values.shape, dtype=torch.bfloat16)
    round_stochastically(values.clone(), out, key, first)
    return out


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("part", [1 / 256, 0.25, 0.5, 0.9])
def test_mean_is_the_value(part, sign):
    """Within five standard deviations of a mean over many elements."""
    step = 2.0**-7
    value = torch.tensor(sign * (1 + part * step))
    found = rounded(value.expand(MANY)).double()
    deviation = step * (part * (1 - part) / MANY) ** 0.5
    assert abs(found.mean() - value.double()) < 5 * deviation
    assert set(found.abs().unique().tolist()) == {1.0, 1.0 + step}


def test_mean_over_many_updates_is_the_sum_of_the_updates():
    """Updates far below what bfloat16 can add to 1: rounded to the nearest, they would all be lost."""
    weight, update, steps = torch.ones(4096, dtype=torch.bfloat16), 1e-5, 200
    for step in range(steps):
        weight = rounded(weight.float() + update, rounding_key(0, "weight", step))
    assert abs(weight.float().mean() - 1 - steps * update) < 1e-4
    assert (torch.ones(1, dtype=torch.bfloat16) + update).item() == 1.0


def test_values_of_bfloat16_stay():
    values = torch.tensor([0.0, -0.0, 1.5, -3e38, torch.inf, -torch.inf])
    found = rounded(values)
    assert torch.equal(found.view(torch.int16), values.bfloat16().view(torch.int16))
    assert rounded(torch.tensor([torch.nan])).isnan().all()


def test_slices_are_rounded_like_the_whole():
    values = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    parts = [rounded(values[start : start + 1024], first=start) for start in range(0, 5000, 1024)]
    assert torch.equal(torch.cat(parts), rounded(values))


def test_random_bits_are_uniform_and_differ_by_key():
    like = torch.empty(MANY)
    first, second = (random_bits(rounding_key(0, "weight", step), 0, like) for step in (1, 2))
    counts = torch.bincount(first >> 8, minlength=256)
    assert (counts - 256).abs().max() < 6 * 16
    assert (first == second).float().mean() < 0.001
    assert abs(torch.corrcoef(torch.stack((first, second)).double())[0, 1]) < 0.02
    assert len({rounding_key(*key) for key in [(0, "a", 1), (0, "a", 2), (0, "b", 1), (1, "a", 1)]}) == 4
