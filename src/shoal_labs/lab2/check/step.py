"""Check the order of the student's training step and what it times, with a simulated clock."""

import sys
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from shoal_labs.check.fault import Fault, fault
from shoal_labs.check.one_step import NotingOptimizer, alike, gradient_of, is_number, network, samples
from shoal_labs.check.standins import gpu
from shoal_labs.check.standins.clock import Clock
from shoal_labs.check.student import written

DELAY_S, AVERAGE_S, BACKWARD_S, FORWARD_S = 0.25, 1.0, 4.0, 16.0
"""Durations on the simulated clock: every sum of them shows what was timed."""
FACTOR = 3.0
"""The check's average multiplies a gradient by this: a step with another gradient came too early."""
OUT_OF_ORDER = frozenset({"average_times", "step_times", "step_before_average"})
"""Faults that say already why the gradient of the step is wrong."""
SECONDS = (
    *("delay_timed", "backward_timed", "all_timed", "milliseconds", "wrong_seconds"),
    *("not_synchronised", "queue_timed"),
)
EXACT_S = 1e-3
"""Readings of the clock take far less."""


class OnGpu(Tensor):
    """A tensor of the processor that says it is on a GPU."""

    device: ClassVar[Any] = property(lambda _: torch.device("cuda", 0))
    is_cuda: ClassVar[Any] = property(lambda _: True)


def train_step_faults() -> list[Fault]:
    """What is wrong with two steps of a delayed node, and with the seconds of a third one on a GPU."""
    notes = list[str]()

    def note(kind: str, *_: object) -> str:
        notes.append(kind)
        return notes[-2] if len(notes) > 1 else ""

    clock = Clock(note, sys.path[0])
    clock.install()
    train_step = written("model", "train_step")
    model = network()
    optimizer = NotingOptimizer(model.parameters(), notes)
    hooks = [
        model.register_forward_hook(lambda *_: setattr(clock, "now_s", clock.now_s + FORWARD_S)),
        next(model.parameters()).register_hook(lambda _: setattr(clock, "now_s", clock.now_s + BACKWARD_S)),
    ]
    earlier, all_found = list[Tensor](), dict[str, Fault]()
    for number in (1, 2):
        pictures, labels = samples(6, seed=number)
        loss, grad = gradient_of(model, pictures, labels)
        seen: list[list[Tensor] | None] = []
        notes.clear()
        clock.slept_s = 0.0

        def average(model: nn.Module) -> None:
            clock.now_s += AVERAGE_S
            _average(model, notes, seen)  # noqa: B023

        given = train_step(model, optimizer, pictures, labels, average, DELAY_S)
        found = order_faults(notes, clock.slept_s)
        if not {each.key for each in found} & OUT_OF_ORDER:
            found += gradient_faults(seen[0], optimizer.used[-1], grad, earlier)
        for each in (*found, *answer_faults(given, loss)):
            all_found.setdefault(each.key, each)
        earlier = [FACTOR * each for each in grad]
    for hook in hooks:
        hook.remove()
    if not all_found.keys() & {*SECONDS, "not_two", "not_a_float", "swapped"}:
        all_found.update((each.key, each) for each in gpu_faults(clock, model, optimizer, train_step))
    return list(all_found.values())


def gpu_faults(clock: Clock, model: nn.Module, optimizer: NotingOptimizer, train_step: Any) -> list[Fault]:
    """What is wrong with the seconds where forward, backward and the average are only queued."""
    if torch.cuda.is_available():
        gpu.install()
    clock.pretend_gpu()

    def queue(seconds: float) -> None:
        clock.queued_s += seconds

    model.register_forward_hook(lambda *_: queue(FORWARD_S))
    pictures, labels = (each.as_subclass(OnGpu) for each in samples(6, seed=3))
    try:
        given = train_step(model, optimizer, pictures, labels, lambda _: queue(AVERAGE_S), DELAY_S)
        seconds = float(given[1])
    except Exception:  # the stand-in is no GPU: this step cannot be judged
        return []
    if abs(seconds - AVERAGE_S) < EXACT_S:
        return []
    return [fault("not_synchronised" if seconds < EXACT_S else "queue_timed")]


def _average(model: nn.Module, notes: list[str], seen: list[list[Tensor] | None]) -> None:
    """An average that records when it was called and with what, and changes the gradient in a known way."""
    notes.append("average")
    grads = [param.grad for param in model.parameters()]
    seen.append(
        [grad.detach().clone() for grad in grads if grad is not None]
        if all(g is not None for g in grads)
        else None
    )
    for grad in grads:
        if grad is not None:
            grad.mul_(FACTOR)


def order_faults(notes: list[str], slept_s: float) -> list[Fault]:
    """Every part once, the sleep before the average, the average before the step."""
    found = [
        fault(f"{part}_times", times=notes.count(part))
        for part in ("average", "step")
        if notes.count(part) != 1
    ]
    if not found and notes.index("step") < notes.index("average"):
        found.append(fault("step_before_average"))
    if abs(slept_s - DELAY_S) > 1e-6:
        found.append(fault("slept", slept=slept_s, delay=DELAY_S))
    elif "average" in notes and notes.index("sleep") > notes.index("average"):
        found.append(fault("sleeps_after"))
    return found


def gradient_faults(
    seen: list[Tensor] | None, used: list[Tensor] | None, grad: list[Tensor], earlier: list[Tensor]
) -> list[Fault]:
    """The average must get this batch's gradient, and the step the averaged one."""
    if seen is None or not any(bool(each.any()) for each in seen):
        return [fault("average_before_backward")]
    if earlier and alike(seen, [a + b for a, b in zip(grad, earlier, strict=True)]):
        return [fault("accumulates")]
    if earlier and alike(seen, earlier):
        return [fault("average_before_backward")]
    if not alike(seen, grad):
        return [fault("wrong_gradient")]
    if used is None or not any(bool(each.any()) for each in used):
        return [fault("average_cleared")]
    return [] if alike(used, [FACTOR * each for each in grad]) else [fault("not_the_average")]


def answer_faults(given: Any, loss: float) -> list[Fault]:
    """The loss before the step as a float, and the seconds of the average alone."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        return [fault("not_two", kind=type(given).__name__)]
    its_loss, seconds = given
    kinds = [fault("not_a_float", kind=type(value).__name__) for value in given if not is_number(value)]
    if kinds:
        return kinds[:1]
    if abs(its_loss - loss) > 1e-4 and abs(seconds - loss) < 1e-4:
        return [fault("swapped")]
    wrong = [] if abs(its_loss - loss) <= 1e-4 else [fault("wrong_loss", given=float(its_loss), loss=loss)]
    return wrong + seconds_faults(float(seconds))


def seconds_faults(seconds: float) -> list[Fault]:
    """What was timed instead of the average."""
    if abs(seconds - AVERAGE_S) < EXACT_S:
        return []
    whole = {0.0: "delay_timed", BACKWARD_S: "backward_timed", FORWARD_S + BACKWARD_S: "all_timed"}
    named = [
        key
        for more, key in whole.items()
        for delay_s in (0.0, DELAY_S)
        if abs(seconds - AVERAGE_S - more - delay_s) < EXACT_S
    ]
    if abs(seconds - 1e3 * AVERAGE_S) < 1e3 * EXACT_S:
        return [fault("milliseconds")]
    return [fault(named[0])] if named else [fault("wrong_seconds", given=seconds, right=AVERAGE_S)]
