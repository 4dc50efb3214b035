"""A wrapped module warns of gradients that are not finite before they spread, and names the worker."""

import math
import warnings

import pytest
import torch
from torch import nn

from shoal.comm.threads.group import run_threads
from shoal.strategies.ddp.distributed_data_parallel import DistributedDataParallel


def trained(factors, dtype=torch.float32, steps=1):
    """The warnings of passes in which worker i's loss is multiplied by factor i."""

    def work(group):
        model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)).to(dtype), group)
        for _ in range(steps):
            model.zero_grad()
            (model(torch.ones(4, 2, dtype=dtype)).mean() * factors[group.rank]).backward()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_threads(len(factors), work)
    return [str(each.message) for each in caught if "spreads" in str(each.message)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_the_worker_with_the_bad_gradient_is_named_and_no_other(bad, dtype):
    (sentence,) = trained([1.0, bad, 1.0], dtype)
    assert sentence.startswith("rank 1: the gradient of '")
    assert "spreads it to all 3 workers" in sentence


def test_finite_gradients_are_not_mentioned_however_large():
    assert trained([1.0, 1e37, 0.0]) == []


def test_infinity_is_called_infinity():
    def work(group):
        model = DistributedDataParallel(nn.Linear(2, 1), group)
        (model(torch.ones(1, 2)).sum() * math.inf).backward()

    with pytest.warns(UserWarning, match="is inf; the exchange"):
        run_threads(2, work)


def test_it_is_repeated_after_ten_times_and_a_hundred():
    warned = trained([math.nan, 1.0], steps=101)
    assert len(warned) == 3
    assert "is nan (10 times so far);" in warned[1]
    assert "is nan (100 times so far);" in warned[2]


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_sparse_gradients_are_checked_too(value):
    def work(group):
        table = nn.Embedding(5, 1, sparse=True)
        model = DistributedDataParallel(table, group)
        (model(torch.tensor([1, 3])).sum() * (float(value) if group.rank == 1 else 1.0)).backward()

    with pytest.warns(
        UserWarning, match=f"rank 1: the gradient of 'weight' is {value}; the exchange spreads it"
    ):
        run_threads(2, work)
