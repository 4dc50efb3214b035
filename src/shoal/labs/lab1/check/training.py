"""Check the student's batches and training step."""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from shoal.labs.check.alone import is_number
from shoal.labs.check.fault import Fault, fault
from shoal.labs.check.one_step import NotingOptimizer, alike, gradient_of, network, samples

COUNT, SIZE = 50, 8
"""Samples, and samples of a batch: the last batch is a small one."""


def passes_of(optimizer: str, count: int = 2) -> list[list[list[int]]]:
    """The batches of some passes: the numbers of their samples."""
    generator = torch.Generator().manual_seed(5)
    batches = import_module("model").batches
    return [[_numbers(batch) for batch in batches(optimizer, COUNT, SIZE, generator)] for _ in range(count)]


def _numbers(batch: Any) -> list[int]:
    return [int(index) for index in batch]


def batches_faults() -> list[Fault]:
    """What is wrong with the batches of GD, and with those of the others."""
    whole = passes_of("gd", 1)[0]
    if len(whole) != 1 or len(whole[0]) != COUNT:
        return [fault("gd_batches", batches=len(whole), samples=COUNT)]
    found = [each for optimizer in ("gd", "sgd", "adam") for each in seen_faults(optimizer)]
    return found[:1]


def seen_faults(optimizer: str) -> list[Fault]:
    """What is wrong with which samples a pass goes through, and in which order."""
    first, second = passes_of(optimizer)
    order = [index for batch in first for index in batch]
    if any(not 0 <= index < COUNT for index in order):
        return [fault("out_of_range", optimizer=optimizer, samples=COUNT)]
    missed, twice = COUNT - len(set(order)), len(order) - len(set(order))
    if missed or twice:
        return [fault("not_once", optimizer=optimizer, missed=missed, twice=twice, samples=COUNT)]
    if optimizer == "gd":
        return []
    sizes = [len(batch) for batch in first]
    right = [SIZE] * (COUNT // SIZE) + [COUNT % SIZE]
    if sorted(sizes) != sorted(right):
        return [fault("batch_sizes", optimizer=optimizer, sizes=str(sizes), right=str(right))]
    if order == sorted(order):
        return [fault("stored_order", optimizer=optimizer)]
    if first == second:
        return [fault("same_order", optimizer=optimizer)]
    return []


def train_step_faults() -> list[Fault]:
    """What is wrong with a step, found in two of them."""
    model, notes = network(), list[str]()
    optimizer = NotingOptimizer(model.parameters(), notes)
    step, before = import_module("model").train_step, [p.detach().clone() for p in model.parameters()]
    earlier: list[Tensor] = []
    for number in (1, 2):
        pictures, labels = samples(6, seed=number)
        loss, grad = gradient_of(model, pictures, labels)
        given = step(model, nn.CrossEntropyLoss(), optimizer, pictures, labels)
        if notes.count("step") != number:
            return [fault("steps", steps=notes.count("step") - number + 1)]
        used = optimizer.used[-1]
        if used is None or not any(bool(each.any()) for each in used):
            return [fault("no_gradient")]
        if number == 2 and alike(used, [a + b for a, b in zip(grad, earlier, strict=True)]):
            return [fault("accumulates")]
        if not alike(used, grad):
            return [fault("wrong_gradient")]
        if not is_number(given):
            return [fault("not_a_float", kind=type(given).__name__)]
        if abs(given - loss) > 1e-4:
            return [fault("wrong_loss", given=float(given), loss=loss)]
        earlier = grad
    moved = any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    return [] if moved else [fault("unmoved")]
