"""Stochastic rounding: unbiased, to a neighbour, and the same however the elements are divided."""

import pytest
import torch

from shoal.optim.compact.formats import SEGMENT, random_bits, round_stochastically, rounding_key

MANY = 2**16


KEY = rounding_key(0, "weight", 1)


def rounded(values, key=KEY, first=0):
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


@pytest.mark.parametrize("bits", [0x7FFFFFFF, 0x7F800001, 0x7FC00000, -1, -0x7FFFFF])
def test_nan_stays(bits):
    """Whatever its bits are: adding to them would give −0, 0 or infinity."""
    values = torch.full((MANY,), bits, dtype=torch.int32).view(torch.float32)
    assert values.isnan().all()
    assert rounded(values).isnan().all()


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_infinity_stays(sign):
    assert set(rounded(torch.full((MANY,), sign * torch.inf)).tolist()) == {sign * torch.inf}


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_what_is_beyond_the_largest_becomes_that_or_infinity(sign):
    largest = torch.finfo(torch.bfloat16).max
    half_way = sign * (largest + 2.0**119)  # bfloat16 would have 2¹²⁸ next
    found = rounded(torch.full((MANY,), half_way))
    assert set(found.abs().tolist()) == {largest, torch.inf}
    assert bool((found.sign() == sign).all())
    assert found.isinf().double().mean() == pytest.approx(0.5, abs=0.02)
    at_the_end = rounded(torch.full((MANY,), sign * torch.finfo(torch.float32).max))
    assert at_the_end.isinf().double().mean() > 0.99


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_denormals_have_the_right_mean(sign):
    """Below 2⁻¹²⁶ the steps of bfloat16 are 2⁻¹³³; a quarter of one is a number of float32."""
    step = 2.0**-133
    for steps in (0.25, 3.25):
        found = rounded(torch.full((MANY,), sign * steps * step)).double() * sign / step
        assert set(found.tolist()) == {steps - 0.25, steps + 0.75}
        assert found.mean() == pytest.approx(steps, abs=5 * (0.25 * 0.75 / MANY) ** 0.5)


@pytest.mark.parametrize("numel", [5000, 3 * SEGMENT + 17])
def test_slices_are_rounded_like_the_whole(numel):
    """Whether they begin and end with a segment or inside one."""
    values = torch.randn(numel, generator=torch.Generator().manual_seed(0))
    starts = [*range(0, numel, 1024)][:: 1 if numel < SEGMENT else 37]
    parts = [
        rounded(values[start:stop], first=start)
        for start, stop in zip(starts, [*starts[1:], numel], strict=True)
    ]
    assert torch.equal(torch.cat(parts), rounded(values))


def drawn(key, numel=MANY, first=0):
    return random_bits(key, first, torch.empty(numel, dtype=torch.int32))


def test_random_bits_are_uniform_and_differ_by_key():
    first, second = (drawn(rounding_key(0, "weight", step)) for step in (1, 2))
    counts = torch.bincount(first >> 8, minlength=256)
    assert (counts - 256).abs().max() < 6 * 16
    assert (first == second).float().mean() < 0.001
    assert abs(torch.corrcoef(torch.stack((first, second)).double())[0, 1]) < 0.02
    keys = [(0, "a", 1), (0, "a", 2), (0, "b", 1), (1, "a", 1)]
    assert len({rounding_key(*key) for key in keys}) == 4


def test_elements_of_a_segment_are_independent_in_pairs():
    """Over many updates: neighbours, elements of one column, and elements far apart."""
    updates = torch.stack([drawn(rounding_key(0, "weight", step), 4096) for step in range(2000)]).double()
    for distance in (1, 2, 64, 256, 1000):
        pairs = updates[:, :32].flatten(), updates[:, distance : distance + 32].flatten()
        assert abs(torch.corrcoef(torch.stack(pairs))[0, 1]) < 5 / (2000 * 32) ** 0.5


def test_the_error_of_a_sum_is_that_of_independent_errors():
    """The sum of a row's errors, over many updates: its variance is the sum of their variances."""
    values = 1 + 2**-7 * torch.rand(256, generator=torch.Generator().manual_seed(1))
    part = (values.double() - 1) * 2**7
    errors = [
        ((rounded(values, rounding_key(0, "w", step)).double() - 1) * 2**7 - part).sum()
        for step in range(2000)
    ]
    found, expected = torch.stack(errors), (part * (1 - part)).sum()
    assert abs(found.mean()) < 5 * (expected / 2000) ** 0.5
    assert found.var() / expected == pytest.approx(1, abs=0.25)
