"""Check a program in the course's form on two nodes: the parts that they train on, and what they exchange."""

from collections.abc import Sequence
from pathlib import Path

from shoal_labs.check.fault import Fault, fault
from shoal_labs.check.program import (
    Event,
    Step,
    gradient_faults,
    loss_faults,
    near,
    not_shown,
    run_program,
    same_losses,
    steps_of,
)
from shoal_labs.check.record import SAMPLES

NODES = 2
LOWER = 0.9
"""A learning rate for the sum of three gradients is two thirds of one for the sum of two."""


def train_epoch_faults(folder: Path) -> list[Fault]:
    """What is wrong with the epochs of the program."""
    run = run_program(folder, NODES)
    nodes = [steps_of(node) for node in run.nodes]
    if len(nodes) < NODES or not all(nodes):
        return not_shown(run, "optimizer.step()")
    return [
        *(passes_faults(run.nodes) or [fault("same_losses") for _ in range(same_losses(nodes))]),
        *(exchange_faults(nodes) or sum_faults(folder, nodes)),
        *gradient_faults(nodes[0]),
        *loss_faults([run]),
    ]


def passes_faults(nodes: Sequence[Sequence[Event]]) -> list[Fault]:
    """Do the nodes' samplers divide one permutation, and another one in every epoch?"""
    found: list[Fault] = []
    trained = [passes_of(node) for node in nodes]
    passes = [[each for each in own if each[0].values[1] == "MySampler"] for own in trained]
    orders = [[indices for _, indices in own[:2]] for own in passes]
    if any(len(own) > 1 and own[0] == own[1] != sorted(own[0]) for own in orders):
        found.append(fault("set_epoch_not_called"))
    if all(passes):
        seeds = [own[0][0].values[2] for own in passes]
        whole = passes[0][0][0].values[0]
        missed = whole - len({index for own in orders for index in own[0]})
        if missed > 0 and len(set(seeds)) > 1:
            found.append(fault("seed_by_rank", seeds=list(map(str, seeds)), missed=missed, samples=whole))
    # Nodes may also train alone, for a comparison: only samples that are never divided are wrong.
    divided = list(zip(*(passes if all(passes) else trained), strict=False))
    # A part that a node made itself numbers its own samples.
    seen = [
        [set(indices) for _, indices in each]
        for each in divided
        if all(event.values[0] >= SAMPLES for event, _ in each)
    ]
    if seen and all(own == each[0] for each in seen for own in each):
        found.append(fault("same_samples", samples=len(seen[0][0])))
    return found


def passes_of(node: Sequence[Event]) -> list[tuple[Event, list[int]]]:
    """The passes that trained, with the indices of each."""
    passes: list[tuple[Event, list[int], bool]] = []
    for event in node:
        if event.kind == "pass":
            passes.append((event, [], False))
        elif event.kind == "batch" and passes:
            passes[-1][1].extend(event.values[0])
        elif event.kind == "step" and passes:
            passes[-1] = (*passes[-1][:2], True)
    return [(event, indices) for event, indices, trains in passes if trains]


def exchange_faults(nodes: Sequence[Sequence[Step]]) -> list[Fault]:
    """The nodes must keep the same parameters, and step with the mean over all samples of a step."""
    for steps in zip(*nodes, strict=False):
        if not all(near(steps[0].params, each.params) for each in steps[1:]):
            return [fault("nodes_differ")]
        sizes, grads = (
            [step.samples for step in steps],
            list(zip(*(step.own_grads for step in steps), strict=True)),
        )
        plain = [sum(each) / len(steps) for each in grads]
        weighted = [
            sum(size * value for size, value in zip(sizes, each, strict=True)) / (sum(sizes) or 1)
            for each in grads
        ]
        if near(steps[0].grads, plain) and not near(plain, weighted):
            return [fault("mean_of_means")]
    return []


def sum_faults(folder: Path, nodes: Sequence[Sequence[Step]]) -> list[Fault]:
    """Steps with the sum of the nodes' gradients, where neither the loss nor the step is smaller for it.

    Whether the step is smaller shows with one node more: what belongs to a sum falls with the number of nodes.
    """
    exchanged = [steps for steps in zip(*nodes, strict=False) if not near(steps[0].grads, steps[0].own_grads)]
    if not exchanged or not all(map(_sums, exchanged)):
        return []
    more = [steps_of(node) for node in run_program(folder, NODES + 1).nodes]
    rates = [_rate(each[0]) if each else None for each in (nodes, more)]
    if len(more) == NODES + 1 and rates[0] and rates[1] and rates[1] > LOWER * rates[0]:
        return [fault("sum", nodes=NODES)]
    return []


def _sums(steps: Sequence[Step]) -> bool:
    """Whether the nodes step with the sum of the gradients of their mean losses."""
    total = [sum(each) for each in zip(*(step.own_grads for step in steps), strict=True)]
    return near(steps[0].grads, total) and all(
        len(step.losses) == 1 and near(step.losses, [step.root]) for step in steps
    )


def _rate(steps: Sequence[Step]) -> float | None:
    """By which factor of the gradient the first step moves the parameters; None with another rule."""
    if len(steps) < 2 or not all(steps[0].grads):
        return None
    rates = [
        (before - after) / grad
        for before, after, grad in zip(steps[0].params, steps[1].params, steps[0].grads, strict=True)
    ]
    return rates[0] if max(rates) - min(rates) < 0.05 * abs(rates[0]) else None
