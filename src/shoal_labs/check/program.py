"""Run a program in the shape of the course's hand-out, and record what it does.

Stand-ins record batches, losses, backward passes, collectives, sleeps, readings of clocks and optimizer steps, in their
order on every node. Flags, processes of its own and data that the machine does not have are stood in for, so that
programs of many shapes run. A program that stops all the same is not judged by what it did not show.
"""

import math
import os
import runpy
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from shoal_labs.check.fault import Fault, fault
from shoal_labs.check.nodes import run_nodes
from shoal_labs.check.record import Enough, Recorder
from shoal_labs.check.standins.launch import OtherWorld

MOST_NODES = 4
OWN_ERRORS = frozenset({"SyntaxError", "IndentationError", "TabError", "NameError", "UnboundLocalError"})
"""Errors of a program that no data, flag or package of another machine would prevent."""
LIMIT_S = 15.0
"""How long a program may take; it is stopped, and judged by what it has shown."""


@dataclass(frozen=True)
class Event:
    """One thing that the program did."""

    kind: str
    place: str
    """The line of the student's file."""
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Run:
    """What a program did on each node."""

    nodes: tuple[tuple[Event, ...], ...] = ()
    options: tuple[Mapping[str, Any], ...] = ()
    """The flags that its parser offers."""
    stopped: str = ""
    """Why it did not come to its end; it may have shown much before."""

    def events(self, *kinds: str) -> list[Event]:
        """All nodes' events of some kinds."""
        return [each for node in self.nodes for each in node if each.kind in kinds]


def run_program(
    folder: Path, size: int, flags: Mapping[str, Any] | None = None, *, again: bool = True
) -> Run:
    """Run `model.py` as every node, with other values of some flags; again with as many nodes as it asks for."""
    with TemporaryDirectory(prefix="shoal-check-") as scratch:
        given = (str(folder.resolve()), size, dict(flags or {}), scratch, LIMIT_S)
        nodes = run_nodes(node, folder, size, *given, meet=False, limit_s=1.5 * LIMIT_S)
    answers: list[dict[str, Any]] = [each.answer for each in nodes if each.answer is not None]
    if len(answers) < size:
        late = any(each.late for each in nodes)
        return Run(stopped="TimeoutError: it does not end" if late else "SystemExit: its process ended")
    wanted = max(answer["world"] for answer in answers)
    if wanted != size and again and 1 <= wanted <= MOST_NODES:
        return run_program(folder, wanted, flags, again=False)
    events = tuple(
        tuple(Event(kind, place, tuple(values)) for kind, place, *values in each["events"])
        for each in answers
    )
    stopped = next((each["stopped"] for each in answers if each["stopped"]), "")
    return Run(events, tuple(answers[0]["options"]), stopped)


def node(
    rank: int, folder: str, size: int, flags: dict[str, Any], scratch: str, limit_s: float
) -> dict[str, Any]:
    """One node: the student's program, until it ends or has shown enough."""
    recorder = Recorder(rank, size, folder, flags, Path(scratch), limit_s)
    stopped, world = "", size
    try:
        recorder.install()
        os.chdir(folder)
        sys.argv = ["model.py"]
        with recorder.counting():
            runpy.run_path(f"{folder}/model.py", run_name="__main__")
    except Enough:
        stopped = "enough"
    except OtherWorld as other:
        world = other.size
    except BaseException as error:
        left = isinstance(error, SystemExit) and not error.code
        stopped = "" if left else f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    recorder.meet_at_the_end()
    return {"events": recorder.events, "options": recorder.options, "world": world, "stopped": stopped}


def stops(run: Run) -> bool:
    """Whether an error ended the program."""
    return run.stopped not in ("", "enough")


def not_shown(run: Run, what: str) -> list[Fault]:
    """The task cannot be judged: why."""
    if run.stopped.partition(":")[0] in OWN_ERRORS:
        return [fault("raises", error=run.stopped)]
    if stops(run):
        return [fault("program_stops", error=run.stopped)]
    return [fault("not_shown", what=what)]


@dataclass(frozen=True)
class Step:
    """One step of an optimizer, with everything that the node did since the step before."""

    optimizer: str
    whole: int
    """Samples of the data set from which the last batch came; 0 if no loader gave it."""
    before: tuple[Event, ...]
    """Since the step before, in their order; without what belongs to the batch before."""
    after: tuple[Event, ...]
    """Until the next batch."""
    grads: Sequence[float]
    params: Sequence[float]
    calls: int
    """Of torch's functions."""
    seconds: float
    """On the simulated clock, with sleeps and loops that wait."""

    def has(self, *kinds: str) -> bool:
        """Whether such an event came before the step."""
        return any(each.kind in kinds for each in self.before)

    def kinds(self) -> tuple[list[str], list[str]]:
        """The kinds of events up to the last backward pass, and after it."""
        kinds = [each.kind for each in self.before]
        behind = end_of("backward", kinds)
        return kinds[:behind], kinds[behind:]

    @property
    def samples(self) -> int:
        """In all losses since the step before."""
        return sum(each.values[0] for each in self.before if each.kind == "loss")

    @property
    def losses(self) -> list[float]:
        """The mean losses of its batches."""
        return [each.values[2] for each in self.before if each.kind == "loss"]

    @property
    def root(self) -> float:
        """The value from which the last backward pass began; nan without one."""
        return next((each.values[2] for each in reversed(self.before) if each.kind == "backward"), math.nan)

    @property
    def own_grads(self) -> Sequence[float]:
        """The gradient after the last backward pass; zeros without one."""
        found = [each.values[1] for each in self.before if each.kind == "backward"]
        return found[-1] if found else [0.0] * len(self.grads)


def end_of(kind: str, kinds: Sequence[str]) -> int:
    """The place behind the last event of a kind; 0 without one.

    >>> end_of("wait", ["wait", "clock", "wait", "step"]), end_of("sleep", ["step"])
    (3, 0)
    """
    return max((place for place, each in enumerate(kinds, start=1) if each == kind), default=0)


def steps_of(node: Sequence[Event]) -> list[Step]:
    """The steps of one node."""
    steps: list[Step] = []
    start, whole, now_s = 0, 0, 0.0
    for place, event in enumerate(node):
        if event.kind == "pass":
            whole = event.values[0]
        if event.kind != "step":
            continue
        rest = range(place + 1, len(node))
        end = next((at for at in rest if node[at].kind in ("batch", "pass", "loss", "step")), len(node))
        name, grads, params, calls, then_s = event.values
        before, after = tuple(node[start:place]), tuple(node[place + 1 : end])
        steps.append(Step(name, whole, before, after, grads, params, calls, then_s - (now_s or then_s)))
        start, now_s = end, then_s
    return steps


def gradient_faults(steps: Sequence[Step]) -> list[Fault]:
    """Steps without a gradient, or with one that was not cleared since the step before."""
    for number, step in enumerate(steps):
        backwards = [each for each in step.before if each.kind == "backward"]
        if not backwards or not any(step.grads):
            return [fault("no_gradient")]
        left = backwards[0].values[0]
        if number and any(left) and near(left, steps[number - 1].grads):
            return [fault("accumulates")]
    return []


def loss_faults(runs: Iterable[Run]) -> list[Fault]:
    """A loss that takes the softmax itself, and is given probabilities."""
    losses = [each for run in runs for each in run.events("loss")]
    return [fault("softmax_twice", place=each.place) for each in losses if each.values[1]][:1]


def same_losses(nodes: Sequence[Sequence[Step]]) -> bool:
    """Whether in every step all nodes have the same loss with the same parameters: they have the same samples."""
    together = list(zip(*nodes, strict=False))
    return bool(together) and all(
        steps[0].losses and steps[0].losses == each.losses and near(steps[0].params, each.params)
        for steps in together
        for each in steps[1:]
    )


def near(given: Sequence[float], right: Sequence[float]) -> bool:
    """Whether two tensors have the same probes, but for rounding."""
    size = max(map(abs, (*given, *right)), default=0.0)
    return all(abs(a - b) <= 1e-3 * size + 1e-7 for a, b in zip(given, right, strict=True))
