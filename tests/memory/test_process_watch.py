"""What a watch sees in one step: the peak, gradients, activations and the optimizer's state."""

import torch
from torch import nn

from shoal.memory.process import MemoryWatch
from shoal.strategies.pieces.freed_memory import return_freed_memory


def test_a_step_is_seen_with_its_gradients_activations_and_state():
    model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024))  # 8 MiB
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    params, watch = [*model.parameters()], MemoryWatch(torch.device("cpu"))
    weights = sum(param.nbytes for param in params)

    def step():
        optimizer.zero_grad()
        loss = model(torch.ones(256, 1024)).sum()
        watch.mark()
        loss.backward()
        watch.mark()
        optimizer.step()

    step()
    optimizer.zero_grad()
    return_freed_memory()
    before = watch.now()
    with watch.watching(params, only_in_use=True) as seen:
        step()
    assert seen.gradients == weights
    assert sum(seen.state.values()) == weights
    assert seen.activations == 2 * 256 * 1024 * 4, (
        "the inputs of both layers; the ReLU's output is the second's input"
    )
    assert weights <= seen.peak - before <= 2 * weights
    with watch.watching(params) as seen:
        pass
    assert seen.peak == 0, "no sample outside of a step"


def test_a_gradient_that_is_gone_at_once_is_seen():
    """As that of a layer whose gradient is copied to a bucket, or used inside backward."""
    layer, watch = nn.Linear(2048, 2048, bias=False), MemoryWatch(torch.device("cpu"))  # 16 MiB
    layer.weight.register_post_accumulate_grad_hook(lambda param: setattr(param, "grad", None))
    layer(torch.ones(1, 2048)).sum().backward()
    return_freed_memory()
    before = watch.now()
    with watch.watching(layer.parameters(), only_in_use=True) as seen:
        layer(torch.ones(1, 2048)).sum().backward()
    assert layer.weight.nbytes <= seen.peak - before <= 1.5 * layer.weight.nbytes
