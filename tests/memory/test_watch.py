"""What a watch sees in one step: the peak, gradients, activations and the optimizer's state."""

import torch
from torch import nn

from shoal.memory.watch import MemoryWatch
from shoal.parallel.freed_memory import return_freed_memory


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
