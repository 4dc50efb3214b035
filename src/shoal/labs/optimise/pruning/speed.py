"""Forward passes of several networks that take turns, so that all are timed in the same state of the machine."""

import time
from collections.abc import Mapping

import torch
from torch import Tensor, nn

REPEATS = 4
"""Forward passes of a turn; the fastest counts, because disturbances only make a machine slower."""


def forward_seconds(models: Mapping[str, nn.Module], inputs: Tensor, rounds: int) -> dict[str, list[float]]:
    """The time of a forward pass of each network in every round, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {name: [] for name in models}
    try:
        with torch.inference_mode():
            for model in models.values():
                model.eval()
                model(inputs)
            for _ in range(rounds):
                for name, model in models.items():
                    found[name].append(min(_seconds(model, inputs) for _ in range(REPEATS)))
    finally:
        torch.set_num_threads(threads)
    return found


def _seconds(model: nn.Module, inputs: Tensor) -> float:
    start = time.perf_counter()
    model(inputs)
    return time.perf_counter() - start
