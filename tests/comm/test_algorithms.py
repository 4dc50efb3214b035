"""Every algorithm sums on every world size, and sends exactly what it says."""

import pytest
import torch

from shoal.comm.algorithms import ALGORITHMS
from shoal.comm.costs import COSTS, sends
from shoal.comm.reduction import Op, tree_reduce
from shoal.comm.threads.group import run_threads
from shoal.comm.traced import traced

SIZES = (1, 2, 3, 4, 5, 6, 7, 8)
IN_TREE_ORDER = {"central", "all_gather_sum", "reduce_scatter_all_gather", "tree"}


def contributions(size, numel):
    generator = torch.Generator().manual_seed(numel)
    return [torch.randn(numel, generator=generator) for _ in range(size)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_sums_on_every_worker(name, size):
    for numel in (0, 1, 5, 16, 1003):
        given = contributions(size, numel)

        def work(group, given=given):
            buffer = given[group.rank].clone()
            ALGORITHMS[name](group, buffer)
            return buffer

        results = run_threads(size, work)
        expected = torch.empty(numel)
        tree_reduce(Op.SUM, given, out=expected)
        torch.testing.assert_close(results[0], expected, rtol=1e-5, atol=1e-5)
        assert all(torch.equal(result, results[0]) for result in results), "every worker holds the same bits"
        if name in IN_TREE_ORDER or (name == "halving_doubling" and size.bit_count() == 1):
            assert torch.equal(results[0], expected), "the order is the balanced tree's"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_sends_what_it_says(name, size):
    for numel in (16, 103):

        def work(group, numel=numel):
            group = traced(group)
            ALGORITHMS[name](group, torch.ones(numel))
            total = group.totals.get("send")
            return (total.calls, total.num_bytes // 4) if total else (0, 0)

        assert run_threads(size, work) == [sends(name, rank, size, numel) for rank in range(size)]


@pytest.mark.parametrize("name", ["ring", "halving_doubling", "reduce_scatter_all_gather"])
def test_no_all_reduce_sends_less(name):
    """The busiest worker sends at least 2 n (W − 1) / W; these three reach the bound."""
    for size in (2, 4, 8):
        assert (
            max(sends(name, rank, size, 800).elements for rank in range(size)) == 2 * 800 * (size - 1) // size
        )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_strided_buffers_are_written_where_they_lie(name):
    def work(group):
        table = torch.zeros(10, 2)
        table[:, 1] = group.rank + 1.0
        ALGORITHMS[name](group, table[:, 1])
        return table

    for table in run_threads(3, work):
        assert (table[:, 1] == 6).all()
        assert not table[:, 0].any()


def test_every_algorithm_has_its_costs():
    assert list(COSTS) == list(ALGORITHMS)
