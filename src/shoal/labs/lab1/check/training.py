"""Check the student's batches and training step."""

from typing import Any

import torch
from torch import Tensor, nn

from shoal.labs.check.alone import is_number
from shoal.labs.check.fault import Fault, fault
from shoal.labs.check.one_step import NotingOptimizer, alike, gradient_of, network, samples
from shoal.labs.check.student import written

COUNT, SIZE = 50, 8
"""Samples, and samples of a batch: the last batch is a small one."""


def passes_of(optimizer: str, count: int = 2) -> list[list[list[int]]]:
    """The batches of some passes: the numbers of their samples."""
    generator = torch.Generator().manual_seed(5)
    batches = written("model", "batches")
    return [[_numbers(batch) for batch in batches(optimizer, COUNT, SIZE, generator)] for _ in range(count)]


def _numbers(batch: Any) -> list[int]:
    return [int(index) for index in batch]


def batches_faults() -> list[Fault]:
    """What is wrong with the batches of GD, and with those of the others."""
    whole = passes_of("gd", 1)[0]
    one_step = len(whole) == 1 and len(whole[0]) == COUNT
    found = [] if one_step else [fault("gd_batches", batches=len(whole), samples=COUNT)]
    return found + [
        each for optimizer in ("gd", "sgd", "adam")[not one_step :] for each in seen_faults(optimizer)
    ]


def seen_faults(optimizer: str) -> list[Fault]:
    """What is wrong with which samples a pass goes through, and in which order."""
    first, second = passes_of(optimizer)
    order = [index for batch in first for index in batch]
    if any(not 0 <= index < COUNT for index in order):
        return [fault("out_of_range", optimizer=optimizer, samples=COUNT)]
    missed, twice = COUNT - len(set(order)), len(order) - len(set(order))
    found: list[Fault] = []
    if missed or twice:
        found.append(fault("not_once", optimizer=optimizer, missed=missed, twice=twice, samples=COUNT))
    if optimizer == "gd":
        return found
    sizes = [len(batch) for batch in first]
    right = [SIZE] * (COUNT // SIZE) + [COUNT % SIZE]
    if not found and sorted(sizes) != sorted(right):
        found.append(fault("batch_sizes", optimizer=optimizer, sizes=str(sizes), right=str(right)))
    if order == sorted(order):
        found.append(fault("stored_order", optimizer=optimizer))
    elif first == second:
        found.append(fault("same_order", optimizer=optimizer))
    return found


def train_step_faults() -> list[Fault]:
    """What is wrong with two steps; an error that both have is named once."""
    model, notes = network(), list[str]()
    optimizer = NotingOptimizer(model.parameters(), notes)
    step, before = written("model", "train_step"), [p.detach().clone() for p in model.parameters()]
    earlier, found = list[Tensor](), dict[str, Fault]()
    for number in (1, 2):
        pictures, labels = samples(6, seed=number)
        loss, grad = gradient_of(model, pictures, labels)
        notes.clear()
        optimizer.used.clear()
        given = step(model, nn.CrossEntropyLoss(), optimizer, pictures, labels)
        if notes.count("step") != 1:
            found["steps"] = fault("steps", steps=notes.count("step"))
        for each in (*used_faults(optimizer.used, grad, earlier), *loss_faults(given, loss)):
            found.setdefault(each.key, each)
        earlier = grad
    moved = any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    return list(found.values()) or ([] if moved else [fault("unmoved")])


def used_faults(used: list[list[Tensor] | None], grad: list[Tensor], earlier: list[Tensor]) -> list[Fault]:
    """What is wrong with the gradient that the optimizer steps with."""
    if not used:
        return []
    last = used[-1]
    if last is None or not any(bool(each.any()) for each in last):
        return [fault("no_gradient")]
    if earlier and alike(last, [a + b for a, b in zip(grad, earlier, strict=True)]):
        return [fault("accumulates")]
    return [] if alike(last, grad) else [fault("wrong_gradient")]


def loss_faults(given: Any, loss: float) -> list[Fault]:
    """What is wrong with the loss that a step gives back."""
    if not is_number(given):
        return [fault("not_a_float", kind=type(given).__name__)]
    return [] if abs(given - loss) <= 1e-4 else [fault("wrong_loss", given=float(given), loss=loss)]
