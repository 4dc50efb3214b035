"""Nodes that average their gradients by the student's functions, and what an average costs."""

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import distributed_c10d as c10d

from shoal.kit.division import DataSet
from shoal_labs.check.student import written
from shoal_labs.student.loop import accuracy, apart, batches, digits, flat, network, train, train_in_parts

NODES = 2
UNEVEN = (48, 16)
"""Samples of a batch that each node has, where they differ."""
DELAY_S = 0.005
"""How much later the slow node calls the average."""


def function_of(name: str) -> str:
    """The student's function."""
    return f"{name}_average_gradients"


def trained(
    rank: int, name: str, seeds: Sequence[int], samples: int, steps: int, equal_steps: int
) -> list[Any]:
    """One node: its half of every batch, and the student's average. For each seed a record."""
    dataset, average = digits(samples), written("dist_utils", function_of(name))
    found: list[Any] = []
    for seed in seeds:
        taken = batches(dataset, seed, steps)
        few = taken[:equal_steps]
        even = [[batch[node::NODES] for node in range(NODES)] for batch in few]
        uneven = [batch.split(UNEVEN) for batch in few]
        differences = [compared(rank, dataset, seed, parts, average) for parts in (even, uneven)]
        model = network(dataset, seed)
        losses = train(dataset, model, [batch[rank::NODES] for batch in taken], average)
        found.append(
            {
                "losses": losses,
                "accuracy": accuracy(model, dataset),
                "difference": differences[0],
                "uneven": differences[1],
                "between": between_nodes(flat(model)),
            }
        )
    return found


def compared(
    rank: int, dataset: DataSet, seed: int, steps: Sequence[Sequence[Tensor]], average: Any
) -> float:
    """How far nodes that average are from one machine, where each node has its part of every batch."""
    own, right = network(dataset, seed), network(dataset, seed)
    train(dataset, own, [parts[rank] for parts in steps], average)
    train_in_parts(dataset, right, steps)
    return apart(flat(own), flat(right))


def between_nodes(weights: Tensor) -> float:
    """The largest difference of any node's weights from the first node's. Not by `dist`, whose calls are recorded."""
    everyones = [torch.empty_like(weights) for _ in range(NODES)]
    c10d.all_gather(everyones, weights)
    return max(apart(each, everyones[0]) for each in everyones)


def timed(rank: int, names: Sequence[str], samples: int, rounds: int) -> dict[str, list[list[float]]]:
    """Milliseconds of one average by every function, in turns: [even, with a slow second node], round by round."""
    dataset = digits(samples)
    model = network(dataset, 0)
    averages = {name: written("dist_utils", function_of(name)) for name in names}
    found: dict[str, list[list[float]]] = {name: [] for name in names}
    for number in range(rounds + 1):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            pair = [one_average(rank, model, averages[name], delay_s) for delay_s in (0.0, DELAY_S)]
            if number:  # the first round warms up
                found[name].append(pair)
    return found


def one_average(rank: int, model: nn.Module, average: Any, delay_s: float) -> float:
    """Milliseconds that a node spends in an average; the second node begins later."""
    for param in model.parameters():
        param.grad = torch.ones_like(param)
    c10d.barrier()
    if rank == 1 and delay_s:
        time.sleep(delay_s)
    start_s = time.perf_counter()
    average(model)
    return 1e3 * (time.perf_counter() - start_s)
