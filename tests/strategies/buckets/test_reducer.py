"""Gradients exist once: a large one moves to its bucket when it is final."""

import torch
from torch import nn

from shoal.comm.group import Finished
from shoal.comm.threads.group import ThreadGroup
from shoal.strategies.buckets.plan import MIB
from shoal.strategies.buckets.reducer import MOVED_BYTES, Reducer, ReducerOptions


def on_final(param, callback):
    return param.register_post_accumulate_grad_hook(callback).remove


def test_large_gradients_are_in_their_bucket_before_backward_ends():
    (group,) = ThreadGroup.world(1)
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(3)))  # weights of 256 KiB
    params = dict(model.named_parameters())
    options = ReducerOptions(first_bytes=MIB, most_bytes=100 * MIB)
    reducer = Reducer(group, params, on_final, lambda bucket: Finished(), options)
    assert not reducer.is_early
    (bucket,) = reducer.buckets
    memory = bucket.flat.untyped_storage().data_ptr()
    elsewhere = []

    def count(param):
        """Bytes of gradients with memory of their own, when the first layer's is final."""
        elsewhere.append(
            sum(
                each.grad.nbytes
                for each in params.values()
                if each.grad is not None and each.grad.untyped_storage().data_ptr() != memory
            )
        )

    params["0.weight"].register_post_accumulate_grad_hook(count)
    inputs = torch.randn(2, 256)
    for _ in range(2):  # gradients of several passes add up
        reducer.prepare(weight=0.5)
        model(inputs).square().sum().backward()
    reducer.complete()
    reducer.wait()
    assert max(elsewhere) < MOVED_BYTES
    plain = {name: param.detach().clone().requires_grad_() for name, param in params.items()}
    for _ in range(2):
        torch.func.functional_call(model, plain, (inputs,)).square().sum().backward()
    for name, param in params.items():
        assert torch.allclose(param.grad, 0.5 * plain[name].grad), name
        assert param.grad.untyped_storage().data_ptr() == memory
