"""What torch's wrapper refuses, ours refuses with an error of the same type."""

from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn

from shoal.comm.threads.group import run_threads
from shoal.errors import ShoalError
from shoal.strategies.ddp.distributed_data_parallel import DistributedDataParallel

INPUTS = torch.linspace(-1, 1, 12).view(4, 3)


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


class Forked(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, inputs, both=False):
        return self.one(inputs) + self.other(inputs) if both else self.one(inputs)


def step(model, *args, **options):
    model(INPUTS, *args).square().sum().backward(**options)


def frozen(module):
    return module.requires_grad_(False)


def partly_frozen_later(wrap):
    model = wrap(network())
    frozen(model.module[0])
    step(model)
    step(model)


def replaced_later(wrap):
    model = wrap(network())
    model.module[0] = nn.Linear(3, 4)
    step(model)
    step(model)


def steps(*both, **options):
    def run(wrap):
        model = wrap(Forked(), **options)
        for each in both:
            step(model, each)

    return run


def declared_static_too_late(wrap):
    model = wrap(network())
    step(model)
    model._set_static_graph()
    step(model)


def hooked(*hooks):
    def run(wrap):
        model = wrap(network())
        for hook in hooks:
            model.register_comm_hook(None, hook)
        step(model)

    return run


def future_of(value):
    future = torch.futures.Future()
    future.set_result(value)
    return future


def unchanged(state, bucket):
    return future_of(bucket.buffer())


def of_another_bucket(state, bucket: int):
    return unchanged(state, bucket)


def of_another_result(state, bucket) -> int:
    return unchanged(state, bucket)


def on_two_devices():
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2, device="meta"))


REFUSED = {
    "no parameters": lambda wrap: wrap(nn.ReLU()),
    "frozen": lambda wrap: wrap(frozen(network())),
    "on two devices": lambda wrap: wrap(on_two_devices()),
    "lazy": lambda wrap: wrap(nn.LazyLinear(3)),
    "on meta": lambda wrap: wrap(nn.Linear(2, 2, device="meta")),
    "torch's SyncBatchNorm": lambda wrap: wrap(nn.Sequential(nn.Linear(2, 2), nn.SyncBatchNorm(2))),
    "device_ids": lambda wrap: wrap(network(), device_ids=[0]),
    "device_ids of a CPU": lambda wrap: wrap(network(), device_ids=["cpu"]),
    "two device_ids": lambda wrap: wrap(network(), device_ids=[0, 1]),
    "output_device": lambda wrap: wrap(network(), output_device=1),
    "output_device of a CPU": lambda wrap: wrap(network(), output_device="cpu"),
    "unknown option": lambda wrap: wrap(network(), nonsense=1),
    "process group and mesh": lambda wrap: wrap(
        network(), process_group=dist.group.WORLD, device_mesh=object()
    ),
    "delayed parameters alone": lambda wrap: wrap(network(), delay_all_reduce_named_params=[("a", None)]),
    "frozen later": partly_frozen_later,
    "replaced later": replaced_later,
    "unused": steps(False, False),
    "a static graph with more": steps(False, True, True, static_graph=True),
    "a static graph with less": steps(True, False, False, static_graph=True),
    "static too late": declared_static_too_late,
    "no hook": hooked(5),
    "two hooks": hooked(unchanged, unchanged),
    "a hook of another bucket": hooked(of_another_bucket),
    "a hook of another result": hooked(of_another_result),
    "a hook without a future": hooked(lambda state, bucket: bucket.buffer()),
    "a hook without a tensor": hooked(lambda state, bucket: future_of(3)),
    "a hook of another size": hooked(lambda state, bucket: future_of(bucket.buffer()[:-1].clone())),
    "an argument of no_sync": lambda wrap: wrap(network()).no_sync(3),
    "create_graph": lambda wrap: step(wrap(network()), create_graph=True),
    "create_graph, late": lambda wrap: step(wrap(network(), find_unused_parameters=True), create_graph=True),
}
OF_PYTHON = ("an argument of no_sync",)
"""Refused by the interpreter."""


@pytest.fixture(scope="module")
def torchs():
    """Torch's wrapper, in a world of one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield nn.parallel.DistributedDataParallel
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("name", REFUSED)
def test_errors_have_the_type_of_torchs(torchs, name):
    with pytest.raises((RuntimeError, TypeError, ValueError)) as under_torch:
        REFUSED[name](torchs)
    expected = next(kind for kind in (RuntimeError, TypeError, ValueError) if under_torch.errisinstance(kind))

    def work(group, overlaps):
        group.overlaps = overlaps
        return REFUSED[name](
            lambda module, **options: DistributedDataParallel(module, group, bucket_cap_mb=1e-4, **options)
        )

    for overlaps in (False, True):
        with pytest.raises(expected) as caught:
            run_threads(2, partial(work, overlaps=overlaps))
        assert isinstance(caught.value, ShoalError) or name in OF_PYTHON


def test_a_graph_may_be_static_twice():
    def work(group):
        model = DistributedDataParallel(network(), group, static_graph=True)
        with pytest.warns(UserWarning, match="already"):
            model._set_static_graph()
        step(model)
        step(model)

    run_threads(2, work)


@pytest.mark.filterwarnings("ignore:Using backward")
def test_a_step_after_a_refused_one_is_exchanged():
    def work(group):
        model = DistributedDataParallel(network(), group)
        with pytest.raises(RuntimeError):
            step(model, create_graph=True)
        model.zero_grad()
        step(model)
        return model.module[0].weight.grad.clone()

    first, second = run_threads(2, work)
    assert torch.equal(first, second)
