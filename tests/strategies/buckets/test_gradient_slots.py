"""Gradients in their slots, and what stands for one that is absent."""

import math

import torch

from shoal.strategies.buckets.bucket import Bucket, Region
from shoal.strategies.buckets.gradient_slots import Factor, Filling, Slot, fill


def test_an_absent_gradient_changes_no_sum_not_even_of_minus_zero():
    params = [torch.zeros(1), torch.zeros(1)]
    slots = [Slot(index, str(index), param) for index, param in enumerate(params)]
    bucket = Bucket(torch.ones(2), {"0": Region(0, (1,), (1,)), "1": Region(1, (1,), (1,))})
    Filling(bucket, slots)
    params[0].grad = torch.tensor([5.0])
    assert fill(slots, None) == [slots[1]]
    assert bucket.flat.tolist() == [5.0, 0.0]
    others = torch.tensor([-0.0, -0.0])
    assert math.copysign(1, (bucket.flat + others)[1].item()) == -1

    params[0].grad = torch.tensor([math.nan])
    fill(slots, Factor(0.0))  # a worker without samples
    assert [math.copysign(1, number) for number in (bucket.flat + others).tolist()] == [-1, -1]
