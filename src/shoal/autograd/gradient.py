"""The chain rule: a walk backwards over the tape.

Phase 1, forwards: mark the operations that depend on a wanted variable; the others need no gradient.
Phase 2, backwards: apply the rules of each marked operation to the gradient of its output, and add the results to
the gradients of its inputs.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from shoal.autograd.ops import add
from shoal.autograd.refusals import call_site, describe
from shoal.autograd.tape import Rule, Tape, TapeEntry, current_tape, no_record
from shoal.autograd.variable import Variable
from shoal.errors import AutogradError

Path = tuple[TapeEntry, list[Variable], list[Rule]]
"""A marked operation, its inputs that depend on a wanted variable, and their rules."""


def grad(
    loss: Variable | Sequence[Variable],
    wanted: Sequence[Variable],
    seeds: Tensor | Variable | Sequence[Tensor | Variable] | None = None,
    *,
    record: bool = False,
) -> list[Variable]:
    """∂loss/∂w for each wanted w.

    `seeds` is the gradient of the loss itself: 1 for a scalar, required for any other shape. With `record` the
    gradients are recorded too and can be differentiated again, to any order; without it the tape does not grow. A
    wanted variable that the loss does not depend on gets zeros.

    Cost: one visit to each entry up to the loss.

    >>> a = Variable(torch.tensor(3.0))
    >>> (slope,) = grad(a * a * a, [a], record=True)          # 3a²
    >>> (bend,) = grad(slope, [a])                            # 6a
    >>> slope.item(), bend.item()
    (27.0, 18.0)
    """
    losses = [loss] if isinstance(loss, Variable) else list(loss)
    if seeds is None:
        given = [None] * len(losses)
    else:
        given = [seeds] if isinstance(seeds, Tensor | Variable) else list(seeds)
    tape = _tape_of(losses, wanted)
    record = record or tape.tracing is not None
    lifted = record or tape.trace
    length = len(tape.entries)
    with tape:
        gradients = _start(tape, losses, given, lifted)
        paths = _paths(tape, losses, wanted)
        _walk(paths, gradients, set(wanted), lifted, {})
    if record:
        tape.backward_spans.append((length, len(tape.entries)))
    elif lifted:
        del tape.entries[length:]  # a trace prints the operations of backward, then drops them
        tape.seen.clear()
    return [_finished(tape, gradients.get(variable), variable, record) for variable in wanted]


def backward(
    loss: Variable,
    parameters: Sequence[Variable],
    seed: Tensor | Variable | None = None,
    *,
    release: bool = False,
) -> None:
    """Add ∂loss/∂p to `p.value.grad` of each parameter: where torch's optimizers read it.

    With `release` the tape is reset and each value freed as soon as backward has passed it: less memory, but
    nothing can be differentiated again.

    A gradient is written as soon as it is complete, and the leaf's `on_final` hooks run then, during backward. A
    parameter that the loss does not depend on keeps its gradient.

    >>> w = Variable(torch.tensor([1.0, 2.0]))
    >>> backward((w * w).sum(), [w])
    >>> w.value.grad
    tensor([2., 4.])
    """
    tape = _tape_of([loss], parameters)
    for parameter in parameters:
        if parameter.generation is not None:
            raise AutogradError(
                f"backward writes the gradients of leaves, but a parameter of shape {tuple(parameter.shape)}"
                f" was computed, at {describe(call_site())}",
                "Ask for the gradient of a computed variable with grad(loss, [variable]).",
            )
    if tape.tracing is not None:  # a graph is being compiled: its plan will write the gradients
        tape.tracing.deliveries += zip(parameters, grad(loss, parameters, seed), strict=True)
        return
    gradients = _start(tape, [loss], [seed], lifted=False)
    paths = _paths(tape, [loss], parameters)
    wanted = set(parameters)
    # Walking backwards, the gradient of a leaf is complete after the operation that used the leaf first.
    complete_after: dict[int, list[Variable]] = {}
    seen: set[Variable] = set()
    for step, (_, operands, _) in enumerate(paths):
        for operand in operands:
            if operand in wanted and operand not in seen:
                seen.add(operand)
                complete_after.setdefault(step, []).append(operand)
    if release:
        tape.reset()
    _walk(paths, gradients, wanted, False, complete_after)


def deliver(parameter: Variable, gradient: Tensor) -> None:
    """Write or add a complete gradient to `parameter.value.grad`, then call the parameter's hooks."""
    value = parameter.value
    if value.grad is None:
        value.grad = gradient
    else:
        value.grad.add_(gradient)
    if parameter.hooks:
        for hook in tuple(parameter.hooks.values()):
            hook(value)


def _walk(
    paths: list[Path],
    gradients: dict[Variable, Any],
    wanted: set[Variable],
    lifted: bool,
    complete_after: dict[int, list[Variable]],
) -> None:
    """Phase 2. `gradients` starts with the seeds and ends with the gradients of what is wanted.

    Leaves named in `complete_after` are delivered, and leave the dictionary, after that step.
    """
    summed: set[Variable] = set()
    while paths:
        entry, operands, rules = paths.pop()  # popped, so that nothing here keeps it alive
        output = entry.outputs[0]
        gradient = gradients.get(output) if output in wanted else gradients.pop(output, None)
        if gradient is not None:
            entry.check_unchanged()
            for operand, part in zip(operands, entry.propagate(gradient, rules, lifted), strict=True):
                if operand not in gradients:
                    gradients[operand] = part if lifted or operand not in wanted else _owned(part, gradient)
                elif operand in summed and not lifted:
                    gradients[operand].add_(part)  # the sum was allocated here: in place is safe
                else:
                    gradients[operand] = add(gradients[operand], part)
                    summed.add(operand)
                if lifted:
                    _trace(operand, gradients[operand])
        for parameter in complete_after.get(len(paths), ()):
            if parameter in gradients:
                deliver(parameter, gradients.pop(parameter))


def _trace(variable: Variable, gradient: Variable) -> None:
    """Print the gradient of a variable so far in a trace: `dL/da = v5`."""
    tape = current_tape()
    if tape.trace:
        tape.write(f"dL/d{tape.name_of(variable)} = {tape.name_of(gradient)}")


def _paths(tape: Tape, losses: Sequence[Variable], wanted: Sequence[Variable]) -> list[Path]:
    """Phase 1: the operations up to the loss that depend on a wanted variable, in order."""
    matters = set(wanted)
    paths: list[Path] = []
    for entry in tape.entries[: max(loss.index for loss in losses) + 1]:
        operands: list[Variable] = []
        rules: list[Rule] = []
        for position, operand in enumerate(entry.inputs):
            if type(operand) is Variable and operand in matters:
                rule = entry.primitive.rule(position)
                if rule is not None:
                    operands.append(operand)
                    rules.append(rule)
        if operands:
            matters.add(entry.outputs[0])
            paths.append((entry, operands, rules))
    return paths


def _start(tape: Tape, losses: Sequence[Variable], given: Sequence[Any], lifted: bool) -> dict[Variable, Any]:
    """The gradient of each loss: the seeds."""
    gradients: dict[Variable, Any] = {}
    for loss, seed in zip(losses, given, strict=True):
        shape = f"a loss of shape {tuple(loss.shape)}"
        if seed is None:
            if loss.value.numel() != 1:
                raise AutogradError(
                    f"{shape} is not a scalar, so its gradient needs a seed, at {describe(call_site())}",
                    "Reduce it first (loss.sum()), or pass seeds= of the loss's shape.",
                )
            seed = tape.tracing.constant(loss.value, 1.0) if tape.tracing else torch.ones_like(loss.value)
        elif seed.shape != loss.shape:
            raise AutogradError(
                f"a seed of shape {tuple(seed.shape)} does not fit {shape}, at {describe(call_site())}",
                "A seed has the shape of the loss.",
            )
        if lifted:
            seed = seed if isinstance(seed, Variable) else Variable(seed)
        elif isinstance(seed, Variable):
            seed = seed.value
        gradients[loss] = add(gradients[loss], seed) if loss in gradients else seed
        if lifted:
            _trace(loss, gradients[loss])
    return gradients


def _owned(part: Tensor, gradient: Tensor) -> Tensor:
    """A tensor that shares memory with no other gradient, so that it may be changed in place."""
    if part is gradient or part._is_view() or not part.is_contiguous():
        return part.clone(memory_format=torch.contiguous_format)
    return part


def _finished(tape: Tape, gradient: Any, variable: Variable, record: bool) -> Variable:
    if gradient is None and tape.tracing:
        return tape.tracing.constant(variable.value, 0.0)
    if gradient is None:
        return Variable(torch.zeros_like(variable.value))
    if isinstance(gradient, Tensor):
        return Variable(gradient)
    return gradient if record else Variable(gradient.value)


def _tape_of(losses: Sequence[Variable], wanted: Sequence[Variable]) -> Tape:
    """The one tape on which all of these were recorded."""
    tape: Tape | None = None
    for variable in (*losses, *wanted):
        if variable.generation is None:
            continue
        home = variable.generation()
        which = f"a variable of shape {tuple(variable.shape)}"
        if home is None or home.generation is not variable.generation:
            raise AutogradError(
                f"{which} was recorded before its tape was reset, at {describe(call_site())}",
                "Compute it again on the current tape.",
            )
        if tape is not None and home is not tape:
            raise AutogradError(
                f"{which} belongs to another tape than the loss, at {describe(call_site())}",
                "Compute both under one tape: with Tape() as tape: …",
            )
        tape = home
    return tape or current_tape()


def gradient_check(
    function: Callable[..., Variable], *inputs: Tensor, step: float = 1e-6, tolerance: float = 1e-6
) -> float:
    """Compare a function's gradient with central differences; returns the largest relative difference.

    (f(x + h) − f(x − h)) / 2h differs from the slope by O(h²) and by rounding, O(ε / h): about 1e-9 in float64.
    Raises an AutogradError if the difference exceeds `tolerance`. The function's output is summed. Cost: two
    evaluations per element of the inputs.

    >>> a = torch.tensor([0.5, 2.0], dtype=torch.float64)
    >>> gradient_check(lambda a, b: a * b + b, a, a + 1) < 1e-8
    True
    """
    for position, value in enumerate(inputs):
        if value.dtype != torch.float64:
            raise AutogradError(
                f"gradient_check needs torch.float64, but input {position} is {value.dtype}",
                "Convert with .double(): in float32 rounding hides the slope.",
            )
    with Tape():
        leaves = [Variable(value.clone()) for value in inputs]
        found = grad(function(*leaves).sum(), leaves)

    worst = 0.0
    for position, value in enumerate(inputs):
        slopes = torch.empty_like(value)
        for element in range(value.numel()):
            heights: list[float] = []
            for shift in (step, -step):
                moved = [Variable(other.clone()) for other in inputs]
                moved[position].value.view(-1)[element] += shift
                with no_record():
                    heights.append(function(*moved).sum().item())
            slopes.view(-1)[element] = (heights[0] - heights[1]) / (2 * step)
        scale = max(1.0, slopes.abs().max().item()) if slopes.numel() else 1.0
        gap = (found[position].value - slopes).abs().max().item() / scale if slopes.numel() else 0.0
        if not gap <= tolerance:
            raise AutogradError(
                f"the gradient of input {position} {tuple(value.shape)} differs by {gap:.1e} from central"
                f" differences (tolerance {tolerance:.1e})",
                "A rule is wrong, or the function has a kink within the step.",
            )
        worst = max(worst, gap)
    return worst
