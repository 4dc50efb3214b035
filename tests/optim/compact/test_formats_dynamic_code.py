"""The 8-bit code: its error bound, its fixed points, and what it never does to a second moment."""

import pytest
import torch

from shoal.optim.compact.formats import BLOCK, SIGNED, UNSIGNED

CODES = pytest.mark.parametrize("code", [SIGNED, UNSIGNED], ids=["signed", "unsigned"])


def values_for(code, numel=20_011, seed=0):
    """Values over eleven orders of magnitude, zeros among them; the last block is not whole."""
    draw = torch.Generator().manual_seed(seed)
    values = torch.randn(numel, generator=draw) * 10 ** (11 * torch.rand(numel, generator=draw) - 9)
    values[torch.rand(numel, generator=draw) < 0.05] = 0.0
    return values if code.signed else values.square()


def coded(code, values):
    codes = torch.full(values.shape, 77, dtype=torch.uint8)
    scales = torch.full((-(-len(values) // BLOCK),), torch.nan)
    code.encode(values, codes, scales)
    return codes, scales


def decoded(code, codes, scales):
    return code.decode(codes, scales, torch.empty(codes.shape))


def error_bound(code, magnitude):
    """The largest error of values of this magnitude, in a block whose largest is 1: the bound of the docstring."""
    last = 6 if code.signed else 7
    bound = torch.full_like(magnitude, 10.0**-last)
    for decade in range(last, -1, -1):
        within = magnitude > 10.0 ** -(decade + 1)
        bound[within] = 0.45 * 10**-decade / 2 ** (last - decade) + 2.0**-11 * 10**-decade
    # Below the smallest magnitude, its whole size: a value that is not zero may be rounded up to it.
    return bound.clamp_(min=10.0**-last)


@CODES
def test_error_of_every_value_is_below_the_stated_bound(code):
    values = values_for(code)
    codes, scales = coded(code, values)
    largest = scales.repeat_interleave(BLOCK)[: len(values)].double()
    error = (decoded(code, codes, scales).double() - values.double()).abs() / largest
    rounding = 2.0**-23
    assert (error <= error_bound(code, values.double().abs() / largest) + rounding).all()
    assert error.max() <= (0.0076 if code.signed else 0.0041)


@CODES
def test_scale_is_the_largest_magnitude_of_a_block_and_is_exact(code):
    values = values_for(code)
    codes, scales = coded(code, values)
    for block, scale, original in zip(
        decoded(code, codes, scales).split(BLOCK), scales, values.split(BLOCK), strict=True
    ):
        assert scale == original.abs().max() == block.abs().max()
        assert (block[original == 0] == 0).all()


@CODES
def test_decoded_values_are_encoded_to_the_same_bytes(code):
    codes, scales = coded(code, values_for(code))
    again = coded(code, decoded(code, codes, scales))
    assert torch.equal(again[0], codes)
    assert torch.equal(again[1], scales)


def test_second_moment_never_becomes_zero():
    values = torch.logspace(-30, 0, 200)
    assert (decoded(UNSIGNED, *coded(UNSIGNED, values)) > 0).all()


@CODES
def test_blocks_of_zeros_and_of_tiny_numbers(code):
    values = torch.cat((torch.zeros(BLOCK), torch.full((BLOCK,), 1e-42)))
    assert torch.equal(decoded(code, *coded(code, values)), values)


@CODES
def test_nan_stays_in_its_block(code):
    values = torch.ones(2 * BLOCK)
    values[3] = torch.nan
    found = decoded(code, *coded(code, values))
    assert found[:BLOCK].isnan().all()
    assert torch.equal(found[BLOCK:], torch.ones(BLOCK))
