"""The faults of a program that ran, from what its workers recorded. Runs on the driver."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from shoal_labs.check.fault import Fault, fault
from shoal_labs.lab4.check.seen import (
    FIRST,
    LAST,
    LAYERS,
    Held,
    LayerCall,
    Loss,
    Optimizer,
    Report,
    Seen,
    Step,
)

PARAMETERS = tuple(
    f"{layer}.{part}" for layer in ("conv1", "conv2", "fc1", "fc2") for part in ("weight", "bias")
)
RELUS = ("conv1", "conv2", "fc1")
"""Layers that a ReLU follows."""
TOLERANCE = 1e-4
STAGES, DRAWN, ALIKE = 2, 100, 0.999
"""Stages, and so many of their first numbers, which have such a correlation if they are drawn from one seed."""
Task = Literal[
    "stages", "forward", "init_parameters", "parameter_rrefs", "train_step", "forward_microbatches"
]

FORWARDS: tuple[Task, ...] = ("forward", "forward_microbatches")
"""Tasks that are functions of the model; what runs on other workers belongs to the first."""


def judge(seen: Seen, microbatches: int) -> dict[Task, list[Fault]]:
    """The faults of every task that the program reached."""
    init = init_faults(seen)
    first = seen.steps[0] if seen.steps else seen.stopped
    if first is None:
        return {"init_parameters": init} if init else {}
    found: dict[Task, list[Fault]] = {
        "init_parameters": init,
        "parameter_rrefs": optimizer_faults(seen, first),
        "stages": network_faults(first.before),
    }
    if any(each.key == "other_network" for each in found["stages"]):
        return found  # with one process nothing more can be compared
    found["forward"] = forward_faults(first)
    if microbatches > 1 and seen.steps:
        found["forward_microbatches"] = microbatch_faults(first, microbatches)
    if not found["forward"] and seen.steps:
        found["train_step"] = step_faults(seen)
        found["train_step"] += returned_faults(seen, right=not found["train_step"])
        for task, each in softmax_faults(seen, first):
            found[task] = [*found.get(task, []), each]
    return found


def network_faults(reports: Sequence[Report]) -> list[Fault]:
    """The lab's network, and not all layers on the same worker."""
    found: list[Fault] = []
    others = [shape for report in reports for shape in report.other_weights]
    if others:
        found.append(fault("other_network", found=_shapes(others), expected=_shapes(LAYERS)))
    holders = [report.worker for report in reports if report.parameters]
    return [*found, fault("not_split", worker=holders[0])] if len(holders) == 1 else found


def forward_faults(step: Step) -> list[Fault]:
    """The split model's scores must be those of one process with the same parameters."""
    missing = [name for name in PARAMETERS if not any(name in each.parameters for each in step.before)]
    if missing:
        return [fault("unused", parameters=missing)]
    params = values(step.before)
    pictures, given = recorded(step, FIRST), recorded(step, LAST)
    if matched(given, scores(params, pictures)) is not None:
        return []
    for count in range(1, len(RELUS) + 1):
        for layers in combinations(RELUS, count):
            if matched(given, scores(params, pictures, without_relu=layers)) is not None:
                return [fault("relu_missing", layer=layer) for layer in layers]
    return [fault("other_scores")]


def init_faults(seen: Seen) -> list[Fault]:
    """Parameters that the program asked of a module without any, or that two stages draw from one seed."""
    found = [
        fault("init_nothing" if "init" in function else "no_parameters", function=function, place=place)
        for function, place in seen.empty[:1]
    ]
    first = seen.steps[0] if seen.steps else seen.stopped
    held = [report.parameters for report in first.before if report.parameters] if first else []
    drawn = [next(iter(each.values())).value.flatten()[:DRAWN] for each in held]
    if len(drawn) == STAGES and torch.corrcoef(torch.stack(drawn))[0, 1] > ALIKE:
        found.append(fault("one_seed"))
    return found


def optimizer_faults(seen: Seen, step: Step) -> list[Fault]:
    """The optimizer must have every parameter once, and the parameter itself."""
    given = seen.optimizers[-1]
    named = {
        (report.worker, held.identity): f"{name} ({report.worker})"
        for report in step.before
        for name, held in report.parameters.items()
    }
    missing = [name for key, name in named.items() if key not in given.parameters]
    twice = {named[key] for key in given.parameters if key in named and given.parameters.count(key) > 1}
    doubled = [fault("twice", place=given.place, parameters=sorted(twice))] if twice else []
    if missing and any(key not in named for key in given.parameters):
        owners = sorted({owner for owner, _ in given.parameters})
        return [fault("copies", place=given.place, missing=missing, owners=owners), *doubled]
    if missing:
        counts = {"given": len(named) - len(missing), "all": len(named)}
        return [fault("missing", place=given.place, missing=missing, **counts), *doubled]
    return doubled


def step_faults(seen: Seen) -> list[Fault]:
    """Every step must be the step of one process: loss, gradients, parameters."""
    first = seen.steps[0]
    params = {name: held.value.clone().requires_grad_() for name, held in held_by(first.before).items()}
    optimizer = reference_optimizer(seen.optimizers[-1], params, held_by(first.before), first.before)
    for number, step in enumerate(seen.steps, start=1):
        place = next(each.place for each in seen.backwards if each.context == step.context)
        batch = batch_of(seen.losses, step.context)
        if batch is None:
            return [fault("no_loss", place=place)]
        given_scores, labels = batch
        pictures = recorded(step, FIRST)
        ours = scores(params, pictures)
        if is_softmax_of(given_scores, ours, seen.losses):
            ours = ours.softmax(dim=1)  # another task may be wrong: here the step is judged
        order = matched(given_scores, ours)
        if order is None:
            order = matched(given_scores, ours.log_softmax(dim=1))
        if order is None:
            return [fault("other_loss", place=place, step=number)]
        if swapped := others_labels(pictures[order], labels, seen.losses, step.context):
            return [fault("others_labels", place=place, swapped=swapped, all=len(labels))]
        loss = functional.cross_entropy(ours[order], labels)
        for param in params.values():
            param.grad = None
        loss.backward()
        wrong = gradient_faults(step, params, place)
        given = sum(each.loss for each in seen.backwards if each.context == step.context)
        if abs(given - loss.item()) > TOLERANCE and not any(each.key == "factor" for each in wrong):
            wrong.append(fault("loss_value", place=place, given=given, loss=loss.item()))
        if wrong:
            return wrong
        if optimizer:
            optimizer.step()
        after = held_by(step.after)
        moved = [name for name in PARAMETERS if not near(after[name].value, params[name].detach())]
        if moved:
            return [fault("other_update", step=number, parameters=moved, place=step.place)]
    return []


def is_softmax_of(given: Tensor, ours: Tensor, losses: Sequence[Loss]) -> bool:
    """Whether the scores that cross_entropy was given are the softmax of ours."""
    return (
        losses[0].function == "cross_entropy"
        and matched(given, ours) is None
        and matched(given, ours.softmax(dim=1)) is not None
    )


def softmax_faults(seen: Seen, step: Step) -> list[tuple[Task, Fault]]:
    """A softmax between the last layer and cross_entropy, and the task in whose function it is."""
    batch = batch_of(seen.losses, step.context)
    if batch is None or not is_softmax_of(batch[0], recorded(step, LAST), seen.losses):
        return []
    place = next(each.place for each in seen.backwards if each.context == step.context)
    elsewhere = [each for report in step.before for each in report.softmaxes if each not in seen.softmaxes]
    functions, place = [([], place), *seen.softmaxes, *elsewhere][-1]
    tasks: list[Task] = [each for each in FORWARDS if elsewhere or each in functions]
    return [(tasks[0] if tasks else "train_step", fault("softmax_before", place=place))]


def returned_faults(seen: Seen, right: bool) -> list[Fault]:
    """What is wrong with the loss that train_step returns; compared with the loss of backward if that is right."""
    if seen.returned is None:
        return []
    kind, given = seen.returned
    if given is None:
        return [fault("not_a_float", kind=kind)]
    loss = sum(each.loss for each in seen.backwards if each.context == seen.steps[0].context)
    return [fault("wrong_loss", given=given, loss=loss)] if right and abs(given - loss) > TOLERANCE else []


def others_labels(pictures: Tensor, labels: Tensor, losses: Sequence[Loss], context: int | None) -> int:
    """How many pictures the loss compares with labels of others; 0 where the program's batch is not known.

    Micro-batches may pass the stages in any order, but their scores belong beside their own labels.
    """
    fewest = list[int]()
    for batch, right in (pair for each in losses if each.context == context for pair in each.batches):
        rows = matched(pictures.flatten(1), batch.float().flatten(1)) if len(batch) == len(pictures) else None
        if rows is not None:
            fewest.append(int((right[rows] != labels).sum()))
    return min(fewest, default=0)


def gradient_faults(step: Step, params: Mapping[str, Tensor], place: str) -> list[Fault]:
    """The context must hold the gradient of the batch's mean loss, for every parameter."""
    held = held_by(step.before)
    without = [name for name in PARAMETERS if held[name].grad is None]
    if without:
        cut = sorted({line for report in step.before for line in report.detached})
        return [fault("no_gradient", parameters=without, cut=cut or place)]
    given = [grad for name in PARAMETERS if (grad := held[name].grad) is not None]
    right = [grad for name in PARAMETERS if (grad := params[name].grad) is not None]
    if all(near(a, b) for a, b in zip(given, right, strict=True)):
        return []
    times = factor(given, right)
    return [
        fault("other_gradient", place=place) if times is None else fault("factor", place=place, factor=times)
    ]


def microbatch_faults(step: Step, microbatches: int) -> list[Fault]:
    """The batch must really be in parts; whether they overlap is seen while it runs."""
    parts = len(calls_of(step, FIRST))
    return [] if parts == microbatches else [fault("parts", parts=parts, wanted=microbatches)]


def reference_optimizer(
    given: Optimizer, params: Mapping[str, Tensor], held: Mapping[str, Held], reports: Sequence[Report]
) -> torch.optim.Optimizer | None:
    """The student's optimizer over the parameters of one process that the student gave it; None for none."""
    owner = {name: report.worker for report in reports for name in report.parameters}
    chosen = [params[name] for name in PARAMETERS if (owner[name], held[name].identity) in given.parameters]
    return given.kind(chosen, *given.args, **given.kwargs) if chosen else None


def recorded(step: Step, layer: str) -> Tensor:
    """What the layer recorded in the step's context, all micro-batches together."""
    return torch.cat([call.tensor for call in calls_of(step, layer) if call.tensor is not None])


def calls_of(step: Step, layer: str) -> list[LayerCall]:
    """The layer's calls in the step's context, in their order."""
    calls = [call for report in step.before for call in report.calls]
    own = [call for call in calls if (call.layer, call.context) == (layer, step.context)]
    return sorted(own, key=lambda call: call.begin_ns)


def batch_of(losses: Sequence[Loss], context: int | None) -> tuple[Tensor, Tensor] | None:
    """Scores and labels of the losses that were computed in the context."""
    made = [each for each in losses if each.context == context]
    if not made:
        return None
    return torch.cat([each.scores for each in made]), torch.cat([each.labels for each in made])


def held_by(reports: Sequence[Report]) -> dict[str, Held]:
    """The parameters of all workers by name."""
    return {name: held for report in reports for name, held in report.parameters.items()}


def values(reports: Sequence[Report]) -> dict[str, Tensor]:
    """Their values."""
    return {name: held.value for name, held in held_by(reports).items()}


def _shapes(shapes: Sequence[tuple[int, ...]] | Mapping[tuple[int, ...], str]) -> list[str]:
    return ["×".join(map(str, shape)) for shape in dict.fromkeys(shapes)]


def scores(params: Mapping[str, Tensor], pictures: Tensor, without_relu: Sequence[str] = ()) -> Tensor:
    """The scores of pictures; without the ReLU behind the layers that are named."""

    def relu(layer: str, values: Tensor) -> Tensor:
        return values if layer in without_relu else torch.relu(values)

    def layer(name: str) -> tuple[Tensor, Tensor]:
        return params[f"{name}.weight"], params[f"{name}.bias"]

    strokes = functional.max_pool2d(relu("conv1", functional.conv2d(pictures, *layer("conv1"), padding=2)), 2)
    shapes = functional.max_pool2d(relu("conv2", functional.conv2d(strokes, *layer("conv2"))), 2)
    hidden = relu("fc1", functional.linear(shapes.flatten(1), *layer("fc1")))
    return functional.linear(hidden, *layer("fc2"))


def matched(wanted: Tensor, rows: Tensor) -> Tensor | None:
    """For each wanted row the number of the row that equals it; None if one has no equal.

    Micro-batches may pass a stage in any order.

    >>> matched(torch.tensor([[3.0], [1.0]]), torch.tensor([[1.0], [3.0]]))
    tensor([1, 0])
    """
    if wanted.shape != rows.shape:
        return None
    distances = torch.cdist(wanted.double(), rows.double(), compute_mode="donot_use_mm_for_euclid_dist")
    nearest = distances.min(dim=1)
    return nearest.indices if bool((nearest.values < TOLERANCE).all()) else None


def near(given: Tensor, right: Tensor) -> bool:
    """Whether two tensors are the same but for rounding."""
    return given.shape == right.shape and torch.allclose(given, right, rtol=1e-3, atol=1e-5)


def factor(given: Sequence[Tensor], right: Sequence[Tensor]) -> float | None:
    """The number by which all tensors are larger than the right ones; None if there is no such number.

    >>> factor([torch.tensor([2.0, 4.0])], [torch.tensor([1.0, 2.0])])
    2.0
    """
    flat_given = torch.cat([each.flatten() for each in given]).double()
    flat_right = torch.cat([each.flatten() for each in right]).double()
    found = (flat_given @ flat_right / (flat_right @ flat_right)).item()
    return found if near(flat_given.float(), (found * flat_right).float()) else None
