"""Check the student's batches and training step."""

from typing import Any

import torch
from torch import Tensor, nn

from shoal_labs.check.fault import Fault, fault
from shoal_labs.check.one_step import NotingOptimizer, alike, gradient_of, is_number, network, samples
from shoal_labs.check.student import written

OPTIMIZERS = ("gd", "sgd", "adam")
COUNT, SIZE = 50, 8
"""Samples, and samples of a batch: the last batch is a small one."""


def passes_of(optimizer: str) -> list[list[list[int]]]:
    """The batches of two passes: the numbers of their samples."""
    generator = torch.Generator().manual_seed(5)
    batches = written("model", "batches")
    return [[_numbers(batch) for batch in batches(optimizer, COUNT, SIZE, generator)] for _ in range(2)]


def _numbers(batch: Any) -> list[int]:
    return [int(index) for index in batch]


def all_passes() -> dict[str, list[list[list[int]]]]:
    """Two passes with each optimizer."""
    return {optimizer: passes_of(optimizer) for optimizer in OPTIMIZERS}


def batches_faults(passes: dict[str, list[list[list[int]]]]) -> list[Fault]:
    """What is wrong with the batches of GD, and with those of the others."""
    whole = passes["gd"][0]
    one_step = len(whole) == 1 and len(whole[0]) == COUNT
    found = [] if one_step else [fault("gd_batches", optimizer="gd", batches=len(whole), samples=COUNT)]
    return found + [
        each
        for optimizer in OPTIMIZERS[not one_step :]
        for each in seen_faults(optimizer, *passes[optimizer])
    ]


def seen_faults(optimizer: str, first: list[list[int]], second: list[list[int]]) -> list[Fault]:
    """What is wrong with which samples a pass goes through, and in which order."""
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


def trained() -> list[dict[str, Any]]:
    """Two steps of the student's: the weights before and after, the gradient, what it called and gave back."""
    model, notes = network(), list[str]()
    optimizer = NotingOptimizer(model.parameters(), notes)
    train_step, seen = written("model", "train_step"), list[dict[str, Any]]()
    for number in (1, 2):
        pictures, labels = samples(6, seed=number)
        notes.clear()
        optimizer.used.clear()
        before = [param.tolist() for param in model.parameters()]
        given = train_step(model, nn.CrossEntropyLoss(), optimizer, pictures, labels)
        used = [None if grads is None else [each.tolist() for each in grads] for grads in optimizer.used]
        seen.append(
            {
                "before": before,
                "after": [param.tolist() for param in model.parameters()],
                "steps": notes.count("step"),
                "used": used[-1:],
                "loss": float(given) if is_number(given) else None,
                "kind": type(given).__name__,
            }
        )
    return seen


def train_step_faults(seen: list[dict[str, Any]]) -> list[Fault]:
    """What is wrong with two steps; an error that both have is named once."""
    model, earlier, found = network(), list[Tensor](), dict[str, Fault]()
    for number, step in zip((1, 2), seen, strict=True):
        if number > 1:
            with torch.no_grad():
                for param, values in zip(model.parameters(), step["before"], strict=True):
                    param.copy_(torch.tensor(values))
        loss, grad = gradient_of(model, *samples(6, seed=number))
        if step["steps"] != 1:
            found["steps"] = fault("steps", steps=step["steps"])
        used = [None if grads is None else [torch.tensor(each) for each in grads] for grads in step["used"]]
        for each in (*used_faults(used, grad, earlier), *loss_faults(step["loss"], step["kind"], loss)):
            found.setdefault(each.key, each)
        earlier = grad
    moved = seen[0]["before"] != seen[-1]["after"]
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


def loss_faults(given: float | None, kind: str, loss: float) -> list[Fault]:
    """What is wrong with the loss that a step gives back."""
    if given is None:
        return [fault("not_a_float", kind=kind)]
    return [] if abs(given - loss) <= 1e-4 else [fault("wrong_loss", given=given, loss=loss)]
