"""Check the student's GD, SGD and Adam: many steps against the rule, and against its common errors.

Gradients are random and differ from step to step. The results of common wrong rules are computed as well, so that the
check can say which one was used. The student's process answers with the parameters; another one compares them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from shoal_labs.check.fault import Fault, fault
from shoal_labs.check.student import class_like, with_method, written

STEPS = 10
RATE, B1, B2, EPS = 0.05, 0.8, 0.95, 1e-8
SHAPES = ((3, 2), (3, 2), (4,))
"""Two have the same shape, so that a state which they share would fit both."""
TOLERANCE = 1e-4
"""For float32 numbers near one, after ten steps; wrong rules differ by far more."""
SMALL = 1e-4
"""With gradients of this size, ε = 1e-8 inside the root is as large as v."""
EPSILONS = (0.0, *(10.0**-power for power in range(5, 17)))
"""The lab does not say how large ε is."""

Params = list[Tensor]
Plain = list[Any]
"""Parameters, or the parameters after each step, as nested lists."""


def first_values() -> Params:
    """The initial parameters."""
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(shape, generator=generator).sign() + torch.randn(shape, generator=generator) / 4
        for shape in SHAPES
    ]


def gradients(step: int, scale: float = 1.0) -> Params:
    """Every parameter's gradient in a step, from 1 on."""
    generator = torch.Generator().manual_seed(100 + step)
    return [scale * (torch.randn(shape, generator=generator) + 0.7) for shape in SHAPES]


def path_of(make: Callable[[Iterator[Tensor]], Any], *unused: Tensor, scale: float = 1.0) -> Plain:
    """The parameters after each step of a student's optimizer; `unused` ones never have a gradient."""
    params = [value.clone().requires_grad_() for value in first_values()]
    # An iterator, like model.parameters(): it can be consumed only once.
    optimizer = make(iter([*params, *unused]))
    path: Plain = []
    for step in range(1, STEPS + 1):
        for param, grad in zip(params, gradients(step, scale), strict=True):
            param.grad = grad.clone()
        optimizer.step()
        path.append([param.tolist() for param in params])
    return path


def tensors(path: Plain) -> list[Params]:
    """The inverse: the parameters after each step."""
    return [[torch.tensor(values, dtype=torch.float32) for values in params] for params in path]


def ruled(rule: Callable[[int, int, Tensor, Tensor], Tensor], scale: float = 1.0) -> list[Params]:
    """The parameters after each step of `new = rule(step, which, old, gradient)`."""
    params, path = first_values(), list[Params]()
    for step in range(1, STEPS + 1):
        pairs = zip(params, gradients(step, scale), strict=True)
        params = [rule(step, which, *pair) for which, pair in enumerate(pairs)]
        path.append(params)
    return path


def descent(rate: float) -> list[Params]:
    """w ← w + rate · g: right with −η."""
    return ruled(lambda step, which, old, grad: old + rate * grad)


def adam(**wrong: Any) -> list[Params]:
    """Adam, right or with one of its known errors."""
    state = [[torch.zeros(shape), torch.zeros(shape)] for shape in SHAPES]
    b1, b2, rate = wrong.get("b1", B1), wrong.get("b2", B2), wrong.get("rate", RATE)
    eps, inside = wrong.get("eps", EPS), wrong.get("inside", 0.0)

    def rule(step: int, which: int, old: Tensor, grad: Tensor) -> Tensor:
        m, v = state[0 if wrong.get("shared") and which < 2 else which]
        if wrong.get("forgets"):
            m, v = torch.zeros_like(m), torch.zeros_like(v)
        m = b1 * m + (1 if wrong.get("unweighted") else 1 - b1) * grad
        v = b2 * v + (1 - b2) * (grad if wrong.get("not_squared") else grad * grad)
        count = wrong["count"](step, which) if "count" in wrong else step
        m_hat, v_hat = m / (1 - b1**count), v / (1 - b2**count)
        if wrong.get("in_place"):
            m, v = m_hat, v_hat
        state[0 if wrong.get("shared") and which < 2 else which] = [m, v]
        m_used = m if "m" in wrong.get("uncorrected", "") else m_hat
        v_used = v if "v" in wrong.get("uncorrected", "") else v_hat
        grown = 1 - b2**count if wrong.get("before_correction") else 1.0
        root = v_used + eps if wrong.get("no_root") else (v_used + inside / grown).sqrt() + eps / grown**0.5
        return old - wrong.get("sign", 1) * rate * m_used / root

    return ruled(rule, wrong.get("scale", 1.0))


WRONG_ADAMS: dict[str, dict[str, Any]] = {
    "adam_uncorrected": {"uncorrected": "mv"},
    "adam_m_uncorrected": {"uncorrected": "m"},
    "adam_v_uncorrected": {"uncorrected": "v"},
    "adam_counts_parameters": {"count": lambda step, which: (step - 1) * len(SHAPES) + which + 1},
    "adam_count_late": {"count": lambda step, which: step + 1},
    "adam_never_counts": {"count": lambda step, which: 1},
    "adam_forgets": {"forgets": True},
    "adam_in_place": {"in_place": True},
    "adam_shared": {"shared": True},
    "adam_not_squared": {"not_squared": True},
    "adam_no_root": {"no_root": True},
    "adam_unweighted": {"unweighted": True},
    "adam_swapped": {"b1": B2, "b2": B1},
    "adam_own_betas": {"b1": 0.9, "b2": 0.999},
    "own_rate": {"rate": 1e-3},
    "upwards": {"sign": -1},
}
"""Fault: what it does instead."""
MORE_WRONG_ADAMS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("adam_counts_parameters", {"count": lambda step, which: step * len(SHAPES)}),
    ("adam_counts_parameters", {"count": lambda step, which: which + 1}),
)

OTHER_RULES = (
    *("adam_eps_inside", "adam_small", "partly_finite", "not_finite", "unmoved", "partly_moved", "decay"),
    *("later", "another_rule"),
)
"""Faults of a step that is none of the known wrong ones."""


def same(path: Sequence[Params], other: Sequence[Params], steps: int = STEPS) -> bool:
    """Whether two ways have the same parameters after each of the first steps."""
    return all(
        a.shape == b.shape and torch.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE)
        for mine, theirs in zip(path[:steps], other[:steps], strict=True)
        for a, b in zip(mine, theirs, strict=True)
    )


def descended(kind: str) -> Plain:
    """The way of an optimizer whose rule is w ← w − η g."""
    unused = torch.ones(2, requires_grad=True)
    make = with_method(class_like("MyOptimizer", "sgd" if "Sgd" in kind else kind.lower(), kind), "step")
    return path_of(lambda params: make(params, RATE), unused)


def descent_faults(plain: Plain) -> list[Fault]:
    """What is wrong with this way."""
    path, right = tensors(plain), descent(-RATE)
    if same(path, right):
        return []
    rates = {"upwards": RATE, "no_rate": -1.0, "no_rate_upwards": 1.0}
    named = [fault(key) for key, rate in rates.items() if same(path, descent(rate))]
    return named or general_faults(path, right)


def adapted() -> list[Plain]:
    """The ways of three of the student's Adams, one after the other; the last has small gradients."""
    kind = with_method(written("MyOptimizer", "AdamOptimizer"), "step")
    return [path_of(lambda params: kind(params, RATE, B1, B2), scale=scale) for scale in (1.0, 1.0, SMALL)]


def adam_faults(ways: list[Plain]) -> list[Fault]:
    """What is wrong with the student's Adam."""
    (path, again, small), right = map(tensors, ways), adam()
    if same(path, right):
        return epsilon_faults(small) if same(again, right) else [fault("adam_shares_state")]
    known = (*WRONG_ADAMS.items(), *MORE_WRONG_ADAMS)
    for key, wrong in known:
        if same(path, adam(**wrong)):
            return [fault(key)]
    for (first, one), (second, other) in combinations(known, 2):
        if not one.keys() & other.keys() and same(path, adam(**one, **other)):
            return [fault(first), fault(second)]
    return general_faults(path, right)


def epsilon_faults(small: Sequence[Params]) -> list[Fault]:
    """Where ε is: it must only keep the step from dividing by zero, also where gradients are small."""
    forms = [{"eps": eps, "before_correction": before} for eps in EPSILONS for before in (False, True)]
    if any(same(small, adam(scale=SMALL, **form)) for form in forms):
        return []
    inside = any(same(small, adam(scale=SMALL, **{**form, "eps": 0.0}, inside=form["eps"])) for form in forms)
    return [fault("adam_eps_inside" if inside else "adam_small", size=SMALL)]


def general_faults(path: Sequence[Params], right: Sequence[Params]) -> list[Fault]:
    """What is wrong with a rule that is none of the known wrong ones."""
    start = first_values()
    finite = [torch.cat([value.flatten() for value in params]).isfinite() for params in path]
    if not all(bool(each.all()) for each in finite):
        step = next(number for number, each in enumerate(finite, start=1) if not each.all())
        return [fault("partly_finite" if bool(finite[step - 1].any()) else "not_finite", step=step)]
    moved = [[(a != b).sum().item() for a, b in zip(params, start, strict=True)] for params in path]
    if not any(map(sum, moved)):
        return [fault("unmoved")]
    total = sum(math.prod(shape) for shape in SHAPES)
    if sum(moved[0]) < total:
        return [fault("partly_moved", moved=sum(moved[0]), numbers=total)]
    if decays(path[0], right[0], start):
        return [fault("decay")]
    step = next(n for n in range(1, STEPS + 1) if not same(path, right, n))
    if step > 1:
        return [fault("later", step=step)]
    off = max((a - b).abs().max().item() for a, b in zip(path[0], right[0], strict=True))
    return [fault("another_rule", off=off)]


def decays(params: Params, right: Params, start: Params) -> bool:
    """Whether the first step differs from the right one by a multiple of the parameters themselves."""
    difference = torch.cat([(a - b).flatten() for a, b in zip(params, right, strict=True)])
    if float(difference.abs().max()) < TOLERANCE:
        return False
    values = torch.cat([value.flatten() for value in start])
    factor = (difference @ values) / (values @ values)
    return bool(
        torch.allclose(difference, factor * values, rtol=0, atol=0.02 * difference.abs().max().item())
    )


def cleared() -> dict[str, Plain]:
    """The parameters after the student's zero_grad, and their gradients."""
    params = [value.clone().requires_grad_() for value in first_values()]
    for param, grad in zip(params, gradients(1), strict=True):
        param.grad = grad
    unused = torch.ones(2, requires_grad=True)
    kind = class_like("MyOptimizer", "optimizer", "GdOptimizer")
    with_method(kind, "zero_grad")(iter([*params, unused]), RATE).zero_grad()
    grads = [None if param.grad is None else param.grad.tolist() for param in params]
    return {"params": [param.tolist() for param in params], "grads": grads}


def zero_grad_faults(seen: dict[str, Plain]) -> list[Fault]:
    """What is wrong with clearing the gradients: they may be zeros afterwards, or None."""
    moved = not all(map(torch.equal, *tensors([seen["params"]]), first_values()))
    left = sum(grad is not None and bool(torch.tensor(grad).any()) for grad in seen["grads"])
    return [fault("zero_grad_moves")] * moved + [fault("grad_left", left=left, all=len(SHAPES))] * bool(left)
