"""Check the student's averages: is it the mean, on every node, and by the collective in its name?

The gradients of three nodes are multiples of one another, so that the result shows what was done: with factors 1, 4 and
10 the mean has factor 5, the sum 15, and a node that received nothing still has its own.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from shoal_labs.check.fault import Fault, fault
from shoal_labs.check.nodes import Node
from shoal_labs.check.standins.gpu import PENDING, wait_for
from shoal_labs.check.student import written
from shoal_labs.check.trial import unlike_calls

NODES = 3
FACTORS = (1.0, 4.0, 10.0)
MEAN, SUM = sum(FACTORS) / NODES, sum(FACTORS)
SIZES = (6, 5, 4)
"""Of the parameters: all different, so that a wrong order shows in the calls."""
ROUNDS = 2
TOLERANCE = 1e-5
AVERAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "allreduce_average_gradients": ("all_reduce", ()),
    "allgather_average_gradients": ("all_gather", ("all_reduce",)),
    "reduce_average_gradients": ("reduce", ("all_reduce", "all_gather")),
}
"""The collective in the name of each function, and collectives that would do its work."""

Values = list[list[float]]
"""Of each parameter."""


def base(round_number: int) -> Values:
    """The gradients before the node's factor; they differ from round to round."""
    return [
        [i + 1.25 + 10 * which + 3 * round_number for i in range(size)] for which, size in enumerate(SIZES)
    ]


class Parameters(nn.Module):
    """Nothing but parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.ParameterList([torch.ones(size) for size in SIZES])


def averaged(rank: int, name: str) -> dict[str, Any]:
    """A node's gradients after averaging, round by round, and whether its parameters are unchanged."""
    average = written("dist_utils", name)
    model, rounds, unwaited = Parameters(), list[Values](), 0
    for number in range(ROUNDS):
        for param, values in zip(model.parameters(), base(number), strict=True):
            param.grad = FACTORS[rank] * torch.tensor(values)
        wait_for(average(model))
        unwaited += len(PENDING)
        PENDING.clear()
        rounds.append(
            [[] if p.grad is None else p.grad.detach().flatten().tolist() for p in model.parameters()]
        )
    unmoved = all(bool((param == 1).all()) for param in model.parameters())
    return {"rounds": rounds, "unmoved": unmoved, "unwaited": unwaited}


def average_faults(nodes: Sequence[Node], task: str) -> list[Fault]:
    """What is wrong with an average: its result, and which collectives it calls."""
    named, instead = AVERAGES[task]
    called = {call.partition("(")[0] for node in nodes for call in node.calls}
    if not called:
        return [fault("no_collective", named=named)]
    found = value_faults(nodes)
    if not calls_only(called, named, instead):
        key = "also_another" if found else "another_collective"
        found.append(fault(key, called=sorted(called), named=named))
    return found


def calls_only(called: Iterable[str], named: str, instead: Iterable[str]) -> bool:
    """Whether the collective of a name was called, in any of its forms, and none of those that would do its work.

    >>> calls_only(["all_gather_into_tensor"], "all_gather", ["all_reduce"])
    True
    >>> calls_only(["reduce_scatter", "all_gather_into_tensor"], "reduce", ["all_reduce", "all_gather"])
    False
    """
    kinds = {_kind(call) for call in called}
    return named in kinds and not kinds & set(instead)


def _kind(call: str) -> str:
    """A collective without its form: all_gather of all_gather_into_tensor."""
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "reduce")
    return next((kind for kind in kinds if call.startswith(kind)), call)


def value_faults(nodes: Sequence[Node]) -> list[Fault]:
    """What is wrong with the parameters and the gradients afterwards."""
    found = [] if all(node.answer["unmoved"] for node in nodes) else [fault("parameters_changed")]
    if any(node.answer["unwaited"] for node in nodes):
        found.append(fault("unwaited", place="dist_utils.py"))
    return found + mean_faults(nodes)


def mean_faults(nodes: Sequence[Node]) -> list[Fault]:
    """What the gradients are instead of the mean."""
    first, second = ([_ratios(node, number) for node in nodes] for number in range(ROUNDS))
    right = [str(rank) for rank, ratios in enumerate(first) if _all(MEAN, ratios)]
    if len(right) == NODES:
        return [] if all(_all(MEAN, ratios) for ratios in second) else [fault("second_round")]
    if unlike := unlike_calls(nodes):
        return unlike
    if right:
        return [fault("only_some_nodes", right=right, nodes=NODES)]
    if any(ratio is None for ratios in first for ratio in ratios):
        return [_odd_fault(nodes)]
    by_parameter = list(zip(*first, strict=True))
    off = sum(not _all(MEAN, ratios) for ratios in by_parameter)
    if off < len(SIZES):
        return [fault("some_parameters", off=off, all=len(SIZES))]
    return [_ratio_fault([ratio or 0.0 for ratio in by_parameter[0]])]


def _ratio_fault(by_node: Sequence[float]) -> Fault:
    """What was done, by the factor that each node has of the base gradient."""
    first, alike = by_node[0], _all(by_node[0], by_node)
    divisor, whose = round(SUM / (first or math.inf)), [_near(first, factor) for factor in FACTORS]
    symptoms = (
        (all(map(_near, by_node, FACTORS)), fault("own_gradient")),
        (all(map(_near, by_node, [own / NODES for own in FACTORS])), fault("own_divided")),
        (alike and _near(first, SUM), fault("sum", nodes=NODES)),
        (alike and _near(first, MEAN / NODES), fault("divided_twice", nodes=NODES)),
        (alike and any(whose), fault("one_nodes", rank=[*whose, True].index(True))),
        (alike and _near(SUM, divisor * first), fault("divided_by", divisor=divisor, nodes=NODES)),
    )
    # For example, the last node's own gradient counted more than once: show what each node has.
    unknown = fault("factors", factors=[f"{ratio / MEAN:.3g}" for ratio in by_node])
    return next((named for shown, named in symptoms if shown), unknown)


def _odd_fault(nodes: Sequence[Node]) -> Fault:
    """Gradients that are no multiple of what they are made from."""
    got, wanted = nodes[0].answer["rounds"][0], base(0)
    if any(not values for values in got):
        return fault("gradient_gone")
    if any(len(values) != len(right) for values, right in zip(got, wanted, strict=True)):
        return fault("other_shape")
    if all(value == math.floor(value) for values in got for value in values):
        return fault("whole_numbers")
    return fault("no_mean")


def _ratios(node: Node, number: int) -> list[float | None]:
    """The factor that each parameter's gradient has of the base; None where it is not a multiple of it."""
    return [_ratio(got, made) for got, made in zip(node.answer["rounds"][number], base(number), strict=True)]


def _ratio(got: Sequence[float], made: Sequence[float]) -> float | None:
    if len(got) != len(made):
        return None
    ratios = [a / b for a, b in zip(got, made, strict=True)]
    return ratios[0] if all(_near(ratio, ratios[0]) for ratio in ratios) else None


def _all(value: float, ratios: Sequence[float | None]) -> bool:
    return all(_near(ratio, value) for ratio in ratios)


def _near(a: float | None, b: float) -> bool:
    return a is not None and math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
