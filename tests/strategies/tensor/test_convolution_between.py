"""Layers between a column and a row cut: dropout has the mask that one machine draws."""

import pytest
import torch
from torch import nn

from shoal.comm.threads.group import ThreadGroup
from shoal.strategies.tensor.convolution import DividedDropout


@pytest.mark.parametrize(
    ("whole", "shape", "dim"), [(nn.Dropout(0.4), (5, 8), 1), (nn.Dropout2d(0.4), (5, 8, 3, 3), 1)]
)
def test_the_parts_of_a_mask_are_one_machines_mask(whole, shape, dim):
    x = torch.randn(shape, dtype=torch.float64)
    torch.manual_seed(7)
    expected, afterwards = whole(x), torch.get_rng_state()
    parts = []
    for group, part in zip(ThreadGroup.world(2), x.chunk(2, dim), strict=True):
        torch.manual_seed(7)
        parts.append(DividedDropout(whole, group, "drop")(part))
        assert torch.equal(torch.get_rng_state(), afterwards), "the workers' random states stay equal"
    assert torch.equal(torch.cat(parts, dim), expected)
    assert not torch.equal(parts[0] == 0, parts[1] == 0)


def test_in_evaluation_nothing_is_dropped():
    group, _ = ThreadGroup.world(2)
    x = torch.randn(3, 4)
    assert torch.equal(DividedDropout(nn.Dropout(0.9), group, "drop").eval()(x), x)
