"""Workers' leaves: whole micro-batches of the same batches for any number of workers."""

import pytest
import torch

from shoal.data.division import ByLeaves, Global


@pytest.mark.parametrize("micro_batch", [1, 8, 100])
@pytest.mark.parametrize("batch", [1, 8, 44, 64])
def test_the_same_leaves_for_any_number_of_workers(batch, micro_batch):
    one = Global(100, seed=3, size=1)
    for size in (1, 2, 4, 8, 16):
        division = ByLeaves(100, seed=3, size=size, micro_batch=micro_batch)
        for consumed in range(0, 100, batch):
            shares = [division.step(1, consumed, batch, rank) for rank in range(size)]
            assert tuple(map(len, shares)) == division.counts(consumed, batch)
            leaves = [leaf for share in shares if len(share) for leaf in share.split(micro_batch)]
            expected = one.step(1, consumed, batch, 0).split(micro_batch)
            assert [leaf.tolist() for leaf in leaves] == [leaf.tolist() for leaf in expected]
            first = [division.first_leaf(consumed, batch, rank) for rank in range(size)]
            assert first == [rank * first[1] if size > 1 else 0 for rank in range(size)]


def test_work_is_even_where_the_number_of_leaves_is_a_power_of_two():
    assert ByLeaves(1000, 0, 4, 8).counts(0, 64) == (16, 16, 16, 16)
    assert torch.equal(ByLeaves(50, 2, 1, 8).order(3), Global(50, 2, 1).order(3))
