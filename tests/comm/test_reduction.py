"""The order of sums is the balanced tree, whatever the size and wherever the result goes."""

import pytest
import torch

from shoal.comm.reduction import Op, makes_sense, tree_reduce, tree_steps
from shoal.comm.threads.group import run_threads
from shoal.errors import GroupError


def level_by_level(values):
    """The definition: neighbours are added until one is left."""
    while len(values) > 1:
        pairs = [values[i : i + 2] for i in range(0, len(values), 2)]
        values = [pair[0] + pair[1] if len(pair) == 2 else pair[0] for pair in pairs]
    return values[0]


@pytest.mark.parametrize("size", range(1, 18))
def test_sums_neighbours_first(size):
    generator = torch.Generator().manual_seed(size)
    tensors = [torch.randn(100, generator=generator) * 10.0 ** (rank % 5) for rank in range(size)]
    before = [tensor.clone() for tensor in tensors]
    out = torch.empty(100)
    tree_reduce(Op.SUM, tensors, out=out)
    assert torch.equal(out, level_by_level(tensors))
    assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))
    for target in range(size):
        copies = [tensor.clone() for tensor in tensors]
        tree_reduce(Op.SUM, copies, out=copies[target])
        assert torch.equal(copies[target], out), "the result may take the place of any contribution"


def test_the_order_matters_and_is_not_left_to_right():
    tensors = [torch.tensor([value]) for value in (1e8, -1e8, 1.0, 1e-8)]
    out = torch.empty(1)
    tree_reduce(Op.SUM, tensors, out=out)
    assert out.item() == 1.0
    tensors = [torch.tensor([value]) for value in (1.0, 1e8, -1e8, 1.0)]
    tree_reduce(Op.SUM, tensors, out=out)
    assert out.item() == 0.0, "left to right would give 1"


def test_few_intermediate_results_are_alive():
    sizes = (2, 4, 8, 16, 64)
    assert [len({target for target, _, _ in tree_steps(size)}) for size in sizes] == [1, 2, 3, 4, 6]
    assert len(tree_steps(64)) == 63


@pytest.mark.parametrize(
    ("op", "expected"), [(Op.MIN, 1), (Op.MAX, 4), (Op.PRODUCT, 12), (Op.AVERAGE, 8 / 3)]
)
def test_other_operations(op, expected):
    out = torch.empty(1, dtype=torch.float64)
    tree_reduce(op, [torch.tensor([value], dtype=torch.float64) for value in (3, 1, 4)], out=out)
    assert out.item() == pytest.approx(expected, abs=1e-15)


def test_not_a_number_is_not_lost():
    for op in Op:
        out = torch.empty(1)
        tree_reduce(op, [torch.tensor([1.0]), torch.tensor([float("nan")]), torch.tensor([2.0])], out=out)
        assert out.isnan().all()


def test_a_reduction_by_its_name():
    def work(group):
        found = torch.tensor([float(group.rank)])
        group.all_reduce(found, op="max").wait()
        with pytest.raises(GroupError, match="there is no reduction 'mean'"):
            group.all_reduce(found, op="mean")
        return found.item()

    assert run_threads(3, work) == [2.0] * 3


def test_what_makes_sense():
    assert not makes_sense(Op.AVERAGE, torch.int32)
    assert not makes_sense(Op.SUM, torch.bool)
    assert makes_sense(Op.MAX, torch.bool)
    assert makes_sense(Op.AVERAGE, torch.bfloat16)
