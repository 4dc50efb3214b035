"""Buckets that take turns in two memories: sums, order, and how little memory there is."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from shoal.comm.threads.group import run_threads
from shoal.errors import ConfigError
from shoal.strategies.replicas.step_in_backward import RotatingBuckets

SIZES = (40, 30, 20, 10)


def on_final(param, callback):
    return param.register_post_accumulate_grad_hook(callback).remove


def network():
    """The same one every time, also where threads, which share torch's generator, make it at once."""
    net = nn.Sequential(*(nn.Linear(first, last) for first, last in pairwise(SIZES)))
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for param in net.parameters():
            param.copy_(torch.randn(param.shape, generator=draw))
    return net


def summed(group, inputs, most_bytes=1, skip=False):
    """The sums by name, in the order in which they arrived, and the most gradients that were there at a time."""
    net = network()
    params = dict(net.named_parameters())
    names = {id(param): name for name, param in params.items()}
    sums, most = {}, [0]

    def arrived(bucket, updated):
        most[0] = max(most[0], sum(param.grad is not None for param in params.values()))
        sums.update({names[id(param)]: param.grad.clone() for param in updated})

    send = lambda bucket: group.all_reduce(bucket.flat)  # noqa: E731
    buckets = RotatingBuckets(group, params, on_final, send, arrived, most_bytes)
    if not skip:
        buckets.begin()
        net(inputs[group.rank]).sum().backward()
    buckets.complete()
    assert all(param.grad is None for param in params.values())
    return sums, most[0]


@pytest.mark.parametrize("most_bytes", [1, 2000, 10**6])
def test_sums_of_all_workers(most_bytes):
    inputs = torch.randn(3, 5, SIZES[0], generator=torch.Generator().manual_seed(0))
    expected = {name: torch.zeros_like(param) for name, param in network().named_parameters()}
    for own in inputs:
        net = network()
        net(own).sum().backward()
        for name, param in net.named_parameters():
            expected[name] += param.grad
    for sums, _ in run_threads(3, lambda group: summed(group, inputs, most_bytes)):
        assert list(sums) == [*reversed(expected)]
        assert all(torch.equal(sums[name], total) for name, total in expected.items())


def test_few_gradients_exist_at_a_time():
    """Of six: what has just been summed, and the one that backward has just computed."""
    inputs = torch.ones(2, 5, SIZES[0])
    assert all(most <= 3 for _, most in run_threads(2, lambda group: summed(group, inputs)))


def test_worker_without_samples_adds_nothing():
    inputs = torch.ones(2, 5, SIZES[0])
    (alone, _), (both, _) = (
        run_threads(2, lambda group, skip=skip: summed(group, inputs, skip=skip and group.rank == 1))[0]
        for skip in (True, False)
    )
    assert all(torch.equal(2 * alone[name], both[name]) for name in both)


def test_unused_parameter_is_named():
    def work(group):
        net = network()
        buckets = RotatingBuckets(
            group,
            dict(net.named_parameters()),
            on_final,
            lambda bucket: group.all_reduce(bucket.flat),
            print,
            1,
        )
        buckets.begin()
        net[0](torch.ones(1, SIZES[0])).sum().backward()
        buckets.complete()

    with pytest.raises(ConfigError, match="no gradient reached '2.bias', '2.weight', '1.bias', '1.weight'"):
        run_threads(2, work)
