"""Integers of few bits survive packing, and rounding is fair."""

import pytest
import torch

from shoal.codecs.rounding import (
    integers_of,
    largest_level,
    level_dtype,
    levels_field,
    levels_of,
    noise,
    round_with,
)


@pytest.mark.parametrize("bits", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("numel", [0, 1, 7, 33])
def test_every_level_survives_packing(bits, numel):
    top = largest_level(bits)
    levels = torch.linspace(-top, top, numel, dtype=torch.float64).round()
    packed = levels_of(levels.to(level_dtype(bits)), bits)
    assert (packed.dtype, packed.numel()) == levels_field(numel, bits)
    assert torch.equal(integers_of(packed, bits, numel).double(), levels)


def test_noise_is_symmetric_and_never_reaches_a_half():
    drawn = noise(100_003, seed=0, device=torch.device("cpu")).double() / 2**16
    assert drawn.numel() == 100_003
    assert drawn.abs().max() < 0.5
    # The variance of a uniform number is 1/12: 5 standard errors.
    assert abs(drawn.mean().item()) < 5 * (1 / 12 / 100_003) ** 0.5
    assert abs(drawn.square().mean().item() - 1 / 12) < 0.002


def test_whole_numbers_are_not_rounded():
    whole = torch.arange(-127.0, 128.0)
    assert torch.equal(round_with(whole.clone(), noise(255, 0, whole.device)), whole)
