import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal.data.dataset import SCALE_BITS, Affine, rounded

BYTES = torch.arange(256, dtype=torch.uint8)
DEVIATIONS = st.floats(0.01, 1.0)


@given(st.floats(0, 1), DEVIATIONS)
def test_it_is_the_formula_to_within_what_rounding_the_scale_allows(mean, std):
    affine = Affine.normalising(torch.tensor([mean]), torch.tensor([std]), dims=1)
    wanted = (BYTES.double() / 255 - mean) / std
    assert (affine(BYTES.view(256, 1)).flatten().double() - wanted).abs().max() < 2e-5 / std


@given(DEVIATIONS)
def test_a_byte_times_the_scale_is_exact_in_float32(std):
    scale = rounded(1 / (255 * std), SCALE_BITS)
    product = BYTES.float() * torch.tensor(scale)
    assert torch.equal(product.double(), BYTES.double() * scale)
    assert abs(scale * 255 * std - 1) < 2e-5


@given(st.floats(0, 1), DEVIATIONS)
def test_one_pass_and_two_passes_give_the_same_bits(mean, std):
    """Three equal channels take the one-pass way; one differing channel makes all take the other."""
    pictures = BYTES.view(1, 1, 16, 16).expand(2, 3, 16, 16)
    means = torch.full((3,), mean)
    fused = Affine.normalising(means, torch.full((3,), std), dims=3)
    split = Affine.normalising(means, torch.tensor([std, std, 2.0]), dims=3)
    assert fused.one_scale is not None
    assert split.one_scale is None
    assert torch.equal(fused(pictures)[:, :2], split(pictures)[:, :2])


@pytest.mark.parametrize("shape", [(1, 5, 7), (3, 5, 7), (13,)])
def test_the_place_in_a_batch_does_not_change_a_bit(shape):
    generator = torch.Generator().manual_seed(0)
    batch = torch.randint(0, 256, (700, *shape), dtype=torch.uint8, generator=generator)
    channels = shape[0] if len(shape) == 3 else 1
    affine = Affine.normalising(
        torch.rand(channels, generator=generator), torch.full((channels,), 0.3), len(shape)
    )
    whole = affine(batch)
    for size in (1, 3, 64, 501):
        assert torch.equal(torch.cat([affine(part) for part in batch.split(size)]), whole)
