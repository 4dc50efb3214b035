"""The tree of leaves: one order of additions, few sums alive, and models that it cannot serve."""

import math
import weakref

import pytest
import torch
from torch import nn

from shoal.errors import ConfigError
from shoal.strategies.leaf_sums import BinaryCounter, Partial, refuse_batch_statistics, total_of_rows


def leaves(count):
    """Numbers whose sum depends on the order."""
    draw = torch.Generator().manual_seed(count)
    return [torch.randn(5, generator=draw) * 10.0**k for k in range(count)]


def balanced(numbers, slots):
    """The definition: a balanced tree over `slots` leaves, of which those after the last are absent."""
    if slots == 1:
        return numbers[0] if numbers else None
    half = slots // 2
    left, right = balanced(numbers[:half], half), balanced(numbers[half:], half)
    return left if right is None else left + right


def counted(numbers):
    counter = BinaryCounter()
    for number in numbers:
        counter.add(Partial(number[0], [number.clone()]))
    return counter.total()


@pytest.mark.parametrize("count", range(1, 18))
@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_worker_and_group_together_are_the_balanced_tree(count, workers):
    numbers, slots = leaves(count), max(workers, 1 << (count - 1).bit_length())
    each = slots // workers
    totals = [counted(numbers[rank * each : (rank + 1) * each]) for rank in range(workers)]
    sums = [torch.full((5,), -0.0) if total is None else total.gradients[0] for total in totals]
    losses = [0.0 if total is None else total.loss.item() for total in totals]
    expected = balanced(numbers, slots)
    assert torch.equal(balanced(sums, workers), expected)
    assert total_of_rows(losses, torch.zeros(())) == expected[0].item()


def test_absent_keeps_the_sign_of_zero():
    assert math.copysign(1, (torch.tensor(-0.0) + -0.0).item()) == -1
    counter = BinaryCounter()
    counter.add(Partial(torch.zeros(()), [None, torch.tensor([-0.0])]))
    counter.add(Partial(torch.zeros(()), [torch.tensor([2.0]), None]))
    total = counter.total()
    assert total.gradients[0].item() == 2.0
    assert math.copysign(1, total.gradients[1].item()) == -1


def test_at_most_log2_sums_and_one_leaf_are_alive():
    counter, alive = BinaryCounter(), []
    most = 0
    for _ in range(16):
        gradient = torch.ones(3)
        alive.append(weakref.ref(gradient))
        most = max(most, sum(each() is not None for each in alive))
        counter.add(Partial(torch.zeros(()), [gradient]))
        del gradient
    assert most == math.log2(16) + 1


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(3), nn.BatchNorm2d(3, track_running_stats=False)])
def test_batch_norm_is_refused_by_name(layer):
    with pytest.raises(ConfigError, match=r"batch norm \('1'\)"):
        refuse_batch_statistics(nn.Sequential(nn.Linear(3, 3), layer))


def test_other_norms_are_not():
    refuse_batch_statistics(nn.Sequential(nn.GroupNorm(1, 4), nn.LayerNorm(4), nn.BatchNorm1d(4).eval()))
