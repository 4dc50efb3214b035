"""A worker of the student's program, and its steps against one process that starts with the same weights."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from shoal_labs.lab4.check import program
from shoal_labs.lab4.check.judge import PARAMETERS, batch_of, held_by, matched, recorded, scores, values
from shoal_labs.lab4.check.seen import FIRST, SEEN, Seen, Step
from shoal_labs.student.loop import apart


def watched(rank: int, *given: Any) -> dict[str, Any]:
    """One worker of the program; the driver adds what it saw."""
    answer = program.worker(rank, *given)
    if rank > 0:
        return answer
    found = {} if answer["waits"] else curve(SEEN)
    return {**answer, **found, "steps": len(SEEN.steps)}


def curve(seen: Seen) -> dict[str, Any]:
    """The loss of every step and of one process with the same samples; how far the weights are apart at the end."""
    given, right, difference = list[float](), list[float](), None
    params: dict[str, Tensor] = {}
    optimizer: torch.optim.Optimizer | None = None
    samples = 0
    for step in seen.steps:
        batch = batch_of(seen.losses, step.context)
        held = held_by(step.before)
        if batch is None or any(name not in held for name in PARAMETERS):
            break
        if not params:
            params = {name: held[name].value.clone().requires_grad_() for name in PARAMETERS}
            # Over every parameter: an optimizer that misses some shows in the difference.
            mine = seen.optimizers[-1]
            optimizer = mine.kind(list(params.values()), *mine.args, **mine.kwargs)
        ours, (scored, labels) = scores(params, recorded(step, FIRST)), batch
        order = matched(scored, ours)
        loss = nn.functional.cross_entropy(ours if order is None else ours[order], labels)
        for param in params.values():
            param.grad = None
        loss.backward()
        assert optimizer is not None
        optimizer.step()
        given.append(sum(each.loss for each in seen.backwards if each.context == step.context))
        right.append(loss.item())
        difference = apart(_flat(values(step.after)), _flat(params))
        samples = len(labels)
    return {
        "losses": given,
        "right": right,
        "difference": difference,
        "samples": samples,
        "places": places(seen.steps[0]) if seen.steps else {},
    }


def places(step: Step) -> dict[str, list[str]]:
    """The layers of every worker that has any."""
    found = {
        report.worker: list(dict.fromkeys(name.partition(".")[0] for name in report.parameters))
        for report in step.before
    }
    return {worker: layers for worker, layers in sorted(found.items()) if layers}


def _flat(tensors: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([tensors[name].detach().flatten() for name in PARAMETERS])
