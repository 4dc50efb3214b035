"""Every branch on random buckets, against the sum in double precision."""

from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.comm.algorithms import ALGORITHMS
from shoal.comm.group import Group
from shoal.comm.threads.group import run_threads
from shoal_labs.lab2.averaging import BRANCHES
from shoal_labs.lab2.branches import ALL

ELEMENTS = 1003
"""Not a multiple of the number of workers, so that slices have to be padded."""


@dataclass(frozen=True)
class SumError:
    """How far a branch is from the sum, and whether all workers hold the same bits."""

    error: float
    """Relative to the largest element of the sum."""
    same_bits: bool


def sum_errors(workers: int, seed: int) -> dict[str, SumError]:
    """Every branch with this many threads."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(workers, ELEMENTS, generator=generator)
    return {branch: _error(branch, rows) for branch in ALL}


def _error(branch: str, rows: Tensor) -> SumError:
    def work(group: Group) -> Tensor:
        bucket = rows[group.rank].clone()
        if branch in BRANCHES:
            BRANCHES[branch](group, bucket)
        else:
            ALGORITHMS[branch.partition(":")[2]](group, bucket)
        return bucket

    buckets = run_threads(len(rows), work)
    wanted = rows.double().sum(dim=0)
    error = max(float((bucket.double() - wanted).abs().max() / wanted.abs().max()) for bucket in buckets)
    return SumError(error, all(torch.equal(bucket, buckets[0]) for bucket in buckets))
