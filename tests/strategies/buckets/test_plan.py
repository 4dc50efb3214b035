"""Where gradients lie: every parameter in one place, in the order expected, however sizes and kinds are mixed."""

import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from shoal.comm.threads.group import ThreadGroup, run_threads
from shoal.strategies.buckets.buffer_sync import BufferSync
from shoal.strategies.buckets.plan import Kind, Memory, plan

CPU = torch.device("cpu")
KINDS = [Kind(torch.float32, CPU), Kind(torch.float64, CPU), Kind(torch.bfloat16, CPU)]
SIZES = st.lists(st.tuples(st.integers(0, 50), st.sampled_from(KINDS)), min_size=1, max_size=20)


@given(SIZES, st.integers(1, 200), st.integers(1, 400), st.randoms(use_true_random=False))
def test_every_parameter_has_one_place_and_none_overlap(sizes, first_bytes, most_bytes, shuffler):
    params = [torch.empty(numel, dtype=kind.dtype) for numel, kind in sizes]
    order = list(range(len(sizes)))
    shuffler.shuffle(order)
    buckets = plan(params, order, first_bytes, most_bytes)
    assert sorted(param for bucket in buckets for param in bucket.params) == sorted(order)
    for kind in KINDS:
        taken = sorted(
            (bucket.start, bucket.start + bucket.numel) for bucket in buckets if bucket.kind == kind
        )
        assert all(end == start for (_, end), (start, _) in itertools.pairwise(taken))
        assert sum(end - start for start, end in taken) == sum(numel for numel, each in sizes if each == kind)
    for bucket in buckets:
        assert bucket.numel == sum(sizes[param][0] for param in bucket.params)
        assert {sizes[param][1] for param in bucket.params} == {bucket.kind}
    # They are full one after the other: no bucket waits for a later one.
    last = [order.index(bucket.params[-1]) for bucket in buckets]
    assert last == sorted(last)


def test_sizes_are_kept():
    buckets = plan([torch.empty(100)] * 10, range(10), first_bytes=400, most_bytes=1200)
    assert [len(bucket.params) for bucket in buckets] == [1, 3, 3, 3]


def test_views_lie_like_their_parameters():
    wide = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
    gappy = torch.zeros(4, 6)[:, :3]
    params = [wide.weight, wide.bias, gappy, torch.zeros(())]
    (group,) = ThreadGroup.world(1)
    (bucket,) = Memory(group, dict(zip("abcd", params, strict=True))).cut()
    views = bucket.views
    for param, view in zip(params, views, strict=True):
        assert view.shape == param.shape
    assert views[0].stride() == wide.weight.stride()
    for number, view in enumerate(views):
        view.fill_(number)
    assert bucket.flat.tolist() == [float(n) for n, param in enumerate(params) for _ in range(param.numel())]


def test_copies_become_rank_0s():
    def work(group):
        tensors = {
            "float": torch.full((2, 3), float(group.rank)),
            "count": torch.tensor(7 + group.rank),
            "strided": torch.full((5,), group.rank, dtype=torch.float64)[::2],
            "flag": torch.tensor([group.rank == 0]),
        }
        BufferSync(group, lambda: tensors).update()
        return [tensor.tolist() for tensor in tensors.values()]

    assert run_threads(3, work) == [[[[0.0] * 3] * 2, 7, [0.0] * 3, [True]]] * 3
