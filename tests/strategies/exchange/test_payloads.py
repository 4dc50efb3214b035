"""Payloads of several gradients in one message: every dtype at every length, without padding."""

import torch

from shoal.comm.threads.group import run_threads
from shoal.comm.traced import Traced
from shoal.strategies.exchange.payloads import GatheredPayloads, SummedPayloads, all_finite


def payloads(rank):
    return [
        (torch.full((3,), rank + 0.5), torch.arange(3, dtype=torch.int32) + rank),
        (torch.full((1,), rank + 0.25, dtype=torch.float64), torch.full((5,), rank, dtype=torch.uint8)),
        (torch.empty(0), torch.empty(0, dtype=torch.uint8)),
    ]


def test_all_workers_receive_all_payloads_in_rank_order():
    def work(group):
        traced = Traced(group)
        gathered = GatheredPayloads(traced, payloads(group.rank))
        gathered.work.wait()
        return gathered.received(), traced.totals["all_gather"].num_bytes

    for received, num_bytes in run_threads(3, work):
        # An odd number of bytes: the second row begins where no number may.
        assert num_bytes == 2 * (3 * 4 + 3 * 4 + 8 + 5)
        for gradient, of_all in enumerate(received):
            for rank, payload in enumerate(of_all):
                assert all(map(torch.equal, payload, payloads(rank)[gradient]))


def test_tensors_of_several_dtypes_are_summed_in_their_shapes():
    def work(group):
        tensors = [torch.ones(2, 3), torch.ones(4, dtype=torch.float64), torch.full((2,), float(group.rank))]
        summed = SummedPayloads(group, tensors)
        for underway in summed.works:
            underway.wait()
        return len(summed.works), summed.received()

    for messages, sums in run_threads(2, work):
        assert messages == 2
        assert [(total.dtype, total.tolist()) for total in sums] == [
            (torch.float32, [[2, 2, 2], [2, 2, 2]]),
            (torch.float64, [2, 2, 2, 2]),
            (torch.float32, [1, 1]),
        ]


def test_bad_numbers_are_found_among_integers_and_halves():
    assert all_finite([torch.ones(3, dtype=torch.int32)])
    assert all_finite([torch.full((9,), 6e4, dtype=torch.float16), torch.empty(0)])
    assert not all_finite([torch.ones(3), torch.tensor([1.0, torch.inf, -torch.inf])])
    assert not all_finite([torch.tensor([torch.nan], dtype=torch.bfloat16)])
