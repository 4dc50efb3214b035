"""Gradients of several chunks and a short last block: every element is as near as its own block's scale allows."""

import math

import pytest
import torch

from shoal.codecs.codec import Form
from shoal.codecs.quantised import TernGrad
from shoal.codecs.rounding import CHUNK, add_blocks, encode_blocks, largest_level

NUMEL = 2 * CHUNK + 300


def gradient():
    draw = torch.Generator().manual_seed(0)
    # Blocks of very different magnitude: a scale of another block would show.
    return torch.randn(NUMEL, generator=draw) * 10 ** (torch.arange(NUMEL) // 1000 % 7 - 3.0)


@pytest.mark.parametrize("bits", [4, 8, 16])
@pytest.mark.parametrize("block", [100, 256])
def test_no_element_is_off_by_more_than_a_level_of_its_block(bits, block):
    x = gradient()
    out = torch.ones(NUMEL)
    add_blocks(encode_blocks(x, block, bits, math.inf, seed=1), out, block, bits)
    for start in range(0, NUMEL, 37 * block):
        part = slice(start, start + block)
        level = x[part].abs().max() / largest_level(bits)
        assert ((out[part] - 1 - x[part]).abs() <= level * (1 + 1e-5) + 1e-6).all()
    last = slice(NUMEL - NUMEL % block, NUMEL)
    assert ((out[last] - 1 - x[last]).abs() <= x[last].abs().max() / largest_level(bits) + 1e-6).all()


def test_ternary_levels_of_several_chunks_are_where_their_elements_are():
    x = torch.zeros(NUMEL)
    x[[0, CHUNK, 2 * CHUNK, NUMEL - 1]] = torch.tensor([1.0, -1.0, 1.0, -1.0])
    codec = TernGrad(0.0)
    assert torch.equal(codec.decode(codec.encode(x, 0), Form.of(x), 0), x)
