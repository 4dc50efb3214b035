"""Groups that add in an order of their own, and the tree's order on top of them."""

import pytest
import torch

from shoal.comm.links.shaped import shaped
from shoal.comm.reduction import Op, tree_reduce
from shoal.comm.threads.group import run_threads
from shoal.comm.traced import traced
from shoal.comm.tree_sums import TreeSums, tree_summed
from shoal.config.conditions import Link

SIZE = 4


def numbers(rank, count):
    return torch.randn(count, generator=torch.Generator().manual_seed(rank)) * 10.0**rank


def along_tree(count):
    out = torch.empty(count)
    tree_reduce(Op.SUM, [numbers(rank, count) for rank in range(SIZE)], out)
    return out


def by_ring(group):
    """A group over links, which sums around a ring."""
    return tree_summed(shaped(group, [Link(None, bits_per_s=1e9)]))


@pytest.mark.parametrize("count", [0, 1, 7, 64])
def test_all_reduce_has_the_bits_of_the_tree(count):
    def work(group):
        buffer = numbers(group.rank, count)
        by_ring(group).all_reduce(buffer).wait()
        return buffer

    for buffer in run_threads(SIZE, work):
        assert torch.equal(buffer, along_tree(count))


def test_the_ring_alone_has_others():
    def work(group):
        buffer = numbers(group.rank, 64)
        shaped(group, [Link(None, bits_per_s=1e9)]).all_reduce(buffer).wait()
        return buffer

    assert not torch.equal(run_threads(SIZE, work)[0], along_tree(64))


def test_reduce_scatter_has_the_bits_of_the_tree():
    def work(group):
        piece = torch.empty(16)
        TreeSums(group).reduce_scatter(piece, numbers(group.rank, 64)).wait()
        return piece

    assert torch.equal(torch.cat(run_threads(SIZE, work)), along_tree(64))


def test_everything_else_is_the_group_s():
    def work(group):
        tree = TreeSums(traced(group))
        largest, count, column = (
            torch.tensor([1.0 * group.rank]),
            torch.tensor([group.rank]),
            torch.ones(4, 2)[:, 0],
        )
        tree.all_reduce(largest, Op.MAX).wait()
        tree.all_reduce(count).wait()
        tree.all_reduce(column).wait()
        half = tree.split([0, 1] if group.rank < 2 else [2, 3])
        tree.beat()
        return largest.item(), count.item(), column.tolist(), (half.rank, half.size), tree.closed

    for rank, found in enumerate(run_threads(SIZE, work)):
        assert found == (3.0, 6, [4.0] * 4, (rank % 2, 2), False)


def test_groups_in_the_tree_s_order_stay_as_they_are():
    def work(group):
        return tree_summed(group) is group, tree_summed(traced(group)).sums_along_tree

    assert run_threads(SIZE, work) == [(True, True)] * SIZE
