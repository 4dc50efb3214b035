"""The exchange of kept elements: what is sent, and what the bucket holds afterwards."""

import pytest
import torch
from torch import nn

from shoal.comm.algorithms import ring
from shoal.comm.threads.group import run_threads
from shoal.comm.traced import traced
from shoal.config.sections.prune import MagnitudeConfig
from shoal.prune.masks import WeightMasks
from shoal.strategies.buckets.bucket import Bucket, Region
from shoal.strategies.exchange.exchange import AllReduce, By
from shoal.strategies.exchange.kept import KeptOnly

PIGGYBACK = 3


def bucket_of(rank):
    """A weight whose memory is transposed, a bias, and numbers of another kind."""
    draw = torch.Generator().manual_seed(rank)
    flat = torch.randn(20 + 5 + PIGGYBACK, generator=draw)
    regions = {"weight": Region(0, (5, 4), (1, 5)), "bias": Region(20, (5,), (1,))}
    return Bucket(flat, regions, PIGGYBACK)


@pytest.mark.parametrize("inner", [AllReduce(), By(ring)], ids=["all_reduce", "ring"])
@pytest.mark.parametrize("sparsity", [0.0, 0.75])
def test_kept_elements_and_piggyback_are_summed_and_nothing_else_is_sent(inner, sparsity):
    torch.manual_seed(0)
    params = dict(nn.Linear(4, 5).named_parameters())
    expected = sum(bucket_of(rank).flat for rank in range(2))

    def work(group):
        masks = WeightMasks(params, MagnitudeConfig(sparsity=sparsity))
        masks.prune()
        group, bucket = traced(group), bucket_of(group.rank)
        KeptOnly(inner, masks)(group, bucket).wait()
        return bucket, masks.kept["weight"], sum(total.num_bytes for total in group.totals.values())

    for bucket, kept, num_bytes in run_threads(2, work):
        weight, bias = bucket.views
        summed = bucket.split(expected)[0]
        assert torch.equal(weight, torch.where(kept, summed, 0.0))
        assert torch.equal(bias, expected[20:25])
        assert torch.equal(bucket.piggyback, expected[25:])
        if isinstance(inner, AllReduce):
            assert num_bytes == 4 * (int(kept.sum()) + 5 + PIGGYBACK)


def test_until_the_first_pruning_the_bucket_itself_is_exchanged():
    params = dict(nn.Linear(4, 5).named_parameters())
    seen = []

    class Watching(AllReduce):
        def __call__(self, group, bucket):
            seen.append(bucket)
            return super().__call__(group, bucket)

    def work(group):
        bucket = bucket_of(group.rank)
        KeptOnly(Watching(), WeightMasks(params, MagnitudeConfig()))(group, bucket).wait()
        return bucket

    assert set(map(id, run_threads(2, work))) == set(map(id, seen))
