"""Check a program in the course's form: with which samples it steps, and in which order it trains."""

import ast
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from shoal_labs.check.fault import Fault, fault
from shoal_labs.check.program import (
    Run,
    Step,
    gradient_faults,
    loss_faults,
    not_shown,
    run_program,
    steps_of,
)
from shoal_labs.check.student import stamp, syntax

MOST_RUNS = 3
MOST_PASSES = 100
NAMES = ("gd", "sgd", "adam")
"""Values for a flag that names the optimizer, unless the parser says which there are."""


def kind_of(optimizer: str) -> str:
    """Which of the lab's optimizers a class is, by its name.

    >>> [kind_of(name) for name in ("GdOptimizer", "MySGD", "AdamOptimizer", "Lion")]
    ['gd', 'sgd', 'adam', '']
    """
    return next((kind for kind in ("adam", "sgd", "gd") if kind in optimizer.lower()), "")


def batches_faults(folder: Path) -> list[Fault]:
    """What is wrong with the batches: GD steps with the whole set, SGD with a part of it in a random order."""
    runs = _runs(folder, stamp(folder))
    found, seen = dict[tuple[str, str], Fault](), set[str]()
    for run in runs:
        for step in _steps(run):
            kind = kind_of(step.optimizer)
            if not step.whole or not step.samples:
                continue
            seen.add(kind)
            for each in step_faults(kind, step):
                found.setdefault((each.key, kind), each)
        for each in (*order_faults(run), *first_batch_faults(run, folder)):
            found.setdefault((each.key, str(each.values["optimizer"])), each)
    return list(found.values()) or ([] if "gd" in seen else not_shown(runs[0], "GdOptimizer"))


def step_faults(kind: str, step: Step) -> list[Fault]:
    """What is wrong with the samples of one step."""
    if kind == "gd" and step.samples < step.whole:
        batches = -(-step.whole // step.samples)
        return [fault("gd_batches", optimizer="gd", batches=batches, samples=step.whole)]
    if kind == "sgd" and step.samples >= step.whole > 1:
        return [fault("sgd_whole", optimizer="sgd", samples=step.whole)]
    return []


def order_faults(run: Run) -> list[Fault]:
    """Passes of SGD in the stored order."""
    order = list[int]()
    for node in run.nodes[:1]:
        for event in node:
            if event.kind == "pass":
                order = []
            elif event.kind == "batch":
                order += event.values[0]
            elif event.kind == "step" and kind_of(event.values[0]) == "sgd" and len(order) >= 20:
                return [fault("stored_order", optimizer="sgd")] if order == list(range(len(order))) else []
    return []


def first_batch_faults(run: Run, folder: Path) -> list[Fault]:
    """Loops over a loader that are left after its first batch, in every pass of a training.

    A few passes are meant as passes; a training of many such steps with a random batch each is SGD, too.
    """
    heads = {
        f"{path.name}:{line}"
        for path, node in syntax(folder)
        if isinstance(node, ast.For)
        for line in range(node.lineno, (node.iter.end_lineno or node.lineno) + 1)
    }
    return [
        fault("first_batch", optimizer=each[0].optimizer, left=each[0].batches - 1, batches=each[0].batches)
        for each in trainings(run)
        if 1 < len(each) <= MOST_PASSES
        and all(one.seen == 1 < one.batches and one.place in heads for one in each)
    ]


@dataclass
class Pass:
    """One pass through a loader."""

    place: str
    batches: int
    seen: int = 0
    optimizer: str = ""
    """Which stepped in it."""


def trainings(run: Run) -> list[list[Pass]]:
    """The passes in which SGD or Adam stepped, together for each optimizer that the program made."""
    found: list[list[Pass]] = [[]]
    for event in run.nodes[0] if run.nodes else ():
        if event.kind == "optimizer":
            found.append([])
        elif event.kind == "pass":
            found[-1].append(Pass(event.place, event.values[3]))
        elif event.kind == "batch" and found[-1]:
            found[-1][-1].seen += 1
        elif event.kind == "step" and found[-1] and kind_of(event.values[0]) != "gd":
            found[-1][-1].optimizer = kind_of(event.values[0])
    return [[each for each in passes if each.optimizer] for passes in found]


def train_step_faults(folder: Path) -> list[Fault]:
    """What is wrong with clearing gradients, going back and stepping."""
    runs = _runs(folder, stamp(folder))
    steps = [step for run in runs for step in _steps(run)]
    if not steps:
        return not_shown(runs[0], "optimizer.step()")
    return [*gradient_faults(steps), *loss_faults(runs)]


def _steps(run: Run) -> list[Step]:
    return steps_of(run.nodes[0]) if run.nodes else []


@lru_cache(maxsize=4)
def _runs(folder: Path, stamp: object) -> tuple[Run, ...]:
    """The program as it is, and with each optimizer that a flag of it offers."""
    first = run_program(folder, 1)
    runs = [first]
    for option in first.options:
        values = option["choices"] or (NAMES if "opt" in option["name"].lower() else ())
        if any(kind_of(value) for value in values):
            others = [value for value in values if value != option["default"]]
            runs += [run_program(folder, 1, {option["name"]: value}) for value in others[:MOST_RUNS]]
    return tuple(runs)
