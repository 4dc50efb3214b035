"""The state that an optimizer keeps for each element of a parameter, found by a step on single elements."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor


def state_kinds(
    make_optimizer: Callable[[Iterable[Tensor]], torch.optim.Optimizer], params: Sequence[Tensor]
) -> list[dict[str, torch.dtype]]:
    """For each parameter, the names and dtypes of the state that has one number for each of its elements.

    An optimizer of the same kind updates as many tensors of one element, on the CPU, with zero gradients. The
    parameters themselves are not changed, and nothing of their size is allocated.

    >>> weight = torch.zeros(1000, 1000)
    >>> state_kinds(lambda params: torch.optim.Adam(params), [weight])
    [{'exp_avg': torch.float32, 'exp_avg_sq': torch.float32}]
    >>> state_kinds(lambda params: torch.optim.SGD(params, lr=0.1), [weight])
    [{}]
    """
    probes = [torch.zeros(1, dtype=param.dtype) for param in params]
    for probe in probes:
        probe.grad = torch.zeros_like(probe)
    optimizer = make_optimizer(probes)
    optimizer.step()
    return [
        {
            key: value.dtype
            for key, value in optimizer.state.get(probe, {}).items()
            if isinstance(value, Tensor) and value.shape == probe.shape
        }
        for probe in probes
    ]


def state_bytes(
    make_optimizer: Callable[[Iterable[Tensor]], torch.optim.Optimizer], params: Sequence[Tensor]
) -> int:
    """Bytes of the state of all parameters.

    >>> state_bytes(lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9), [torch.zeros(10)])
    40
    """
    kinds = state_kinds(make_optimizer, params)
    return sum(
        param.numel() * dtype.itemsize
        for param, of_one in zip(params, kinds, strict=True)
        for dtype in of_one.values()
    )
