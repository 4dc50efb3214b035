"""Explains a wrong gradient: which part of the workers' own gradients it has, and which part it should have.

Each worker's own gradients are known, one for each backward pass, and so are one machine's gradient and the one that
the optimizer got. Both are written as sums of the own gradients. One machine's coefficients divided by the optimizer's
are the weights that an exchange gave wrongly: all 2 for a sum in place of a mean, 0 for a worker that is left out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.printable import counted
from shoal.verify.combination import Combination, Tensors, combination
from shoal.verify.finding import Finding, Phase
from shoal.verify.rounding import apart

SAME = 0.02
"""Coefficients within this part are the same."""


@dataclass(frozen=True)
class Side:
    """A worker's gradients of a step."""

    grads: Tensors
    """As its optimizer got them."""
    parts: Sequence[Tensors]
    """Its own, of each backward pass."""
    rows: Sequence[int]
    """Samples of each backward pass."""
    before: Tensors = field(default_factory=dict[str, Tensor])
    """As its optimizer got them in the step before."""
    exchanged: Tensors = field(default_factory=dict[str, Tensor])
    """As a wrapper's exchange left them after backward; empty where no wrapper exchanges."""


class Case(NamedTuple):
    """A wrong gradient."""

    step: int
    expected: Tensors
    sides: Sequence[Side]
    params: Tensors
    wrong: Mapping[int, Mapping[str, float]]
    """By worker, the tensors that differ, and by how much."""
    tolerance: float
    exchanged: Tensors = {}
    """One machine's after backward, if a wrapper has exchanged gradients and all workers' were equal to these."""

    @property
    def names(self) -> list[str]:
        """The tensors that differ on any worker."""
        return [name for name in self.expected if any(name in wrong for wrong in self.wrong.values())]

    def finding(self, phase: Phase, rank: int | None, cause: str, *evidence: str) -> Finding:
        """The finding, with the tensor that differs most."""
        on = self.wrong.get(rank, {}) if rank is not None else {}
        sizes = on or {name: max(w.get(name, 0.0) for w in self.wrong.values()) for name in self.names}
        tensor = max(sizes, key=sizes.__getitem__)
        several = f"{len(sizes)} of {counted(len(self.expected), 'gradient')} differ."
        return Finding(
            self.step, phase, rank, tensor, sizes[tensor], self.tolerance, cause, [*evidence, several]
        )


class Weights(NamedTuple):
    """The weights that a gradient has, as multiples of one machine's."""

    own: dict[tuple[int, int], float]
    """By worker and backward pass."""
    before: float
    """Of the step before."""
    decay: float
    """Of the parameters."""
    given: dict[tuple[int, int], float]
    """Coefficients before they are divided."""
    should: dict[tuple[int, int], float]

    def of(self, rank: int) -> list[float]:
        """A worker's weights."""
        return [weight for (each, _), weight in self.own.items() if each == rank]


def explained(case: Case) -> Finding:
    """Name the phase, the worker and the cause of a wrong gradient."""
    labels = [(rank, k) for rank, side in enumerate(case.sides) for k in range(len(side.parts))]
    parts = [case.sides[rank].parts[k] for rank, k in labels]
    if not parts:
        return _unseen(case)
    if case.exchanged and len(case.wrong) < len(case.sides):
        return _changed_later(case)
    every = [*case.expected]
    whole = _fitted(case.expected, parts, [case.params], every, case.tolerance)
    if whole.rest > 10 * case.tolerance:
        return _not_from_own(case)
    rank = next(iter(case.wrong))
    side, names = case.sides[rank], case.names
    grads = {name: side.grads.get(name, torch.zeros_like(case.expected[name])) for name in names}
    found = _fitted(grads, parts, [case.params, side.before], names, case.tolerance)
    if found.rest > 10 * case.tolerance:
        return _changed_later(case) if case.exchanged else _no_combination(case, rank, found.rest)
    should = dict(zip(labels, whole.coefficients[: len(parts)], strict=True))
    given = dict(zip(labels, found.coefficients[: len(parts)], strict=True))
    decay, before = found.coefficients[len(parts) :]
    decay -= whole.coefficients[len(parts)]
    largest = max(map(abs, should.values()))
    own = {label: given[label] / should[label] for label in labels if abs(should[label]) > 1e-6 * largest}
    weights = Weights(own, before, decay, given, should)
    return next(finding for rule in RULES for finding in rule(case, weights))


def _unseen(case: Case) -> Finding:
    """Of sharded parameters, no worker has gradients of its own under their names."""
    rank = next(iter(case.wrong))
    found = combination(case.sides[rank].grads, [case.expected], case.names)
    cause = "the gradient is not one machine's"
    if found.rest <= 10 * case.tolerance:
        cause = f"the gradient is {found.coefficients[0]:.4g} times one machine's"
    why = "Of sharded parameters, the workers' own gradients before the exchange cannot be seen."
    return case.finding("exchange", _only(case), cause, why)


def _fitted(
    target: Tensors, parts: Sequence[Tensors], more: Sequence[Tensors], names: Sequence[str], tolerance: float
) -> Combination:
    """The combination of the parts; where these do not suffice, with `more`, whose coefficients follow."""
    found = combination(target, parts, names)
    if found.rest > 10 * tolerance:
        return combination(target, [*parts, *more], names)
    return Combination([*found.coefficients, *[0.0] * len(more)], found.rest)


def _only(case: Case) -> int | None:
    """The worker that differs, if one does."""
    return next(iter(case.wrong)) if len(case.wrong) == 1 and len(case.sides) > 1 else None


def own_only(case: Case) -> bool:
    """Whether every worker's optimizer gets the worker's own gradients, and those of no other."""
    for side in case.sides:
        names = [name for name in case.expected if name in side.grads]
        found = combination({name: side.grads[name] for name in names}, side.parts, names)
        if not side.parts or found.rest > 10 * case.tolerance:
            return False
    return len(case.sides) > 1


def _not_from_own(case: Case) -> Finding:
    """One machine's gradient is no sum of the workers' own: some worker computed another one."""
    names = case.names
    for name in names:
        without = [
            rank
            for rank, side in enumerate(case.sides)
            if side.parts and all(name not in p for p in side.parts)
        ]
        if without and len(without) < len(case.sides):
            rank = without[0]
            cause = f"rank {rank} has no gradient for {name}, and the other workers have one"
            return case.finding("backward", rank, cause, "It is frozen or not used on this worker alone.")
    cause = "the workers' own gradients do not add up to one machine's"
    advice = "Some worker differentiates another loss, or changes gradients before they are exchanged."
    return case.finding("backward", _only(case), cause, advice)


def _changed_later(case: Case) -> Finding:
    """The exchange was right, and the optimizer gets another gradient: it is changed between the two."""
    rank = next(iter(case.wrong))
    side, only = case.sides[rank], _only(case)
    who = f"rank {rank}'s gradient" if only is not None else "the gradient"
    why = "After backward, which exchanges gradients, those of all workers were one machine's."
    theirs, ours = _factors(side.grads, side.exchanged, case), _factors(case.expected, case.exchanged, case)
    if theirs is None or ours is None:
        return case.finding("update", only, f"{who} is changed between its exchange and the update", why)
    cause = f"{who} is scaled between its exchange and the update: it is clipped by another norm, or divided once more"
    sizes = [f"{name}: {theirs[name]:.3g}, not {ours[name]:.3g}" for name in case.names[:3]]
    more = " …" * (len(case.names) > 3)
    return case.finding(
        "update", only, cause, why, f"Factors of the exchanged gradient: {'; '.join(sizes)}{more}."
    )


def _factors(found: Tensors, base: Tensors, case: Case) -> dict[str, float] | None:
    """For each wrong tensor the number that makes `found` of `base`; None if one is no multiple."""
    factors: dict[str, float] = {}
    for name in case.names:
        if name not in found or name not in base:
            return None
        fitted = combination(found, [base], [name])
        if fitted.rest > 10 * case.tolerance:
            return None
        factors[name] = fitted.coefficients[0]
    return factors


def _no_combination(case: Case, rank: int, rest: float) -> Finding:
    """The optimizer's gradient is no sum of the workers' own: it was changed on the way."""
    found, expected = case.sides[rank].grads, case.expected
    names = [name for name in case.names if name in found]
    only = _only(case)
    if (factors := _factors(found, expected, case)) is not None:
        who = "the gradient" if only is None else f"rank {rank}'s gradient"
        cause = f"each tensor of {who} has a factor of its own: it is clipped or scaled by the norm of a part"
        shown = "; ".join(f"{name}: {factor:.3g}" for name, factor in [*factors.items()][:3])
        return case.finding("exchange", only, cause, f"Multiples of one machine's gradient: {shown}.")
    for dtype in (torch.float16, torch.bfloat16):
        if names and rest <= 4 * torch.finfo(dtype).eps:
            shown = str(dtype).removeprefix("torch.")
            cause = f"the exchange rounds gradients to about {shown}"
            return case.finding(
                "exchange", only, cause, f"{rest:.1e} of a gradient is no sum of the workers'."
            )
    if names:
        ours = torch.cat([found[name].double().reshape(-1) for name in expected if name in found])
        theirs = torch.cat([expected[name].double().reshape(-1) for name in expected if name in found])
        scale = float(theirs.abs().max())
        if apart(ours.sort().values, theirs.sort().values, scale) <= 10 * case.tolerance:
            cause = "the right numbers are in wrong places: an offset in a bucket is wrong"
            return case.finding("exchange", only, cause, "Sorted, both gradients have the same elements.")
    cause = "the exchange changes the gradient: it is no sum of the workers' own gradients"
    advice = (
        "A buffer is written during the exchange, read before it has ended, or shared by several tensors."
    )
    return case.finding("exchange", only, cause, f"{100 * rest:.2g} % of it is no such sum.", advice)


def _near(value: float, target: float) -> bool:
    return abs(value - target) <= SAME * max(abs(target), 1.0 if not target else 0.0)


def _shown(weights: Weights, case: Case) -> str:
    """The weight of each worker, as a sentence."""
    parts = [
        f"rank {rank}: {', '.join(f'{weight:.3g}' for weight in weights.of(rank))}"
        for rank in range(len(case.sides))
        if weights.of(rank)
    ]
    return f"Weights of the workers' gradients, as multiples of one machine's: {'; '.join(parts)}."


Found = Iterator[Finding]


def _stale(case: Case, weights: Weights) -> Found:
    """The step before."""
    if weights.before and abs(weights.before) > 1e-3:
        if all(abs(weight) < SAME for weight in weights.own.values()):
            cause = "the optimizer steps on the gradient of the step before"
            yield case.finding("exchange", _only(case), cause, "This step's gradients have the weight 0.")
        else:
            cause = f"the gradient of the step before is added, {weights.before:.3g} times"
            yield case.finding(
                "exchange", _only(case), cause, "Is `zero_grad` missing, or a buffer not cleared?"
            )


def _decayed(case: Case, weights: Weights) -> Found:
    """The parameters themselves."""
    size = max(float(case.params[name].abs().max()) for name in case.names if name in case.params)
    largest = max(float(case.expected[name].abs().max()) for name in case.names)
    if abs(weights.decay) * size > 10 * case.tolerance * largest:
        cause = f"the parameters are added to the gradient once more, {weights.decay:.3g} times"
        yield case.finding("exchange", _only(case), cause, "Weight decay is added on more than one worker.")


def _alike(case: Case, weights: Weights) -> Found:
    """One factor for all."""
    factors = [*weights.own.values()]
    factor, workers = factors[0], len(case.sides)
    if not all(_near(each, factor) for each in factors) or _near(factor, 1.0):
        return
    passes = max(len(side.parts) for side in case.sides)
    rank = _only(case)
    if abs(factor) < SAME:
        cause = "the gradient that the optimizer gets is zero"
    elif _near(factor, workers) and rank is None:
        cause = "the workers' gradients are summed, and one machine takes their mean"
    elif _near(factor, 1 / workers) and rank is None:
        cause = f"the gradients are divided by the {workers} workers once more than on one machine"
    elif passes > 1 and _near(factor, 1 / passes):
        cause = f"the loss is divided by the {passes} backward passes of a step once more"
    elif passes > 1 and _near(factor, passes):
        cause = f"the loss is not divided by the {passes} backward passes of a step"
    else:
        where = "the gradient" if rank is None else f"rank {rank}'s gradient"
        cause = f"{where} is {factor:.4g} times one machine's: it is divided by a wrong number, or clipped"
    yield case.finding("exchange", rank, cause, _shown(weights, case))


def _not_exchanged(case: Case, weights: Weights) -> Found:
    """Own gradients alone."""
    rank = next(iter(case.wrong))
    others = [abs(weight) for (each, _), weight in weights.own.items() if each != rank]
    mine = [abs(weight) for weight in weights.of(rank)]
    if others and max(others) < SAME and mine and max(mine) > SAME:
        names = case.names
        what = "gradients are" if len(names) == len(case.expected) else f"the gradient of {names[0]} is"
        cause = f"{what} not exchanged: rank {rank}'s optimizer gets its own alone"
        yield case.finding("exchange", _only(case), cause, _shown(weights, case))


def _left_out(case: Case, weights: Weights) -> Found:
    """Workers that are missing."""
    zero = [
        rank for rank in range(len(case.sides)) if weights.of(rank) and max(map(abs, weights.of(rank))) < SAME
    ]
    if zero:
        cause = f"rank {zero[0]}'s gradient does not count: it is left out of the exchange, or overwritten"
        yield case.finding("exchange", zero[0], cause, _shown(weights, case))


def _some_passes(case: Case, weights: Weights) -> Found:
    """Backward passes that are missing."""
    numbers = sorted({k for _, k in weights.own})
    zero = [k for k in numbers if all(abs(w) < SAME for (_, each), w in weights.own.items() if each == k)]
    if zero and len(numbers) > 1:
        kept = [k for k in numbers if k not in zero]
        cause = f"of {len(numbers)} backward passes, only {', '.join(str(k + 1) for k in kept)} counts"
        yield case.finding("exchange", _only(case), cause, _shown(weights, case))
    changes = [abs(a - b) for rank in range(len(case.sides)) for a, b in pairwise(weights.of(rank))]
    if changes and max(changes) > SAME and not zero:
        cause = "the backward passes of a step have different weights: some are exchanged more than once"
        yield case.finding("exchange", _only(case), cause, _shown(weights, case))


def _mean_of_means(case: Case, weights: Weights) -> Found:
    """Every worker counts the same, whatever its number of samples."""
    rows = [sum(side.rows) for side in case.sides]
    given = [weight for weight in weights.given.values() if weight]
    if len(set(rows)) > 1 and all(rows) and max(given) - min(given) <= SAME * max(map(abs, given)):
        few, many = min(rows), max(rows)
        cause = f"the mean of the workers' means gives {counted(few, 'sample')} the weight of {many}"
        shown = ", ".join(f"rank {rank}: {counted(count, 'sample')}" for rank, count in enumerate(rows))
        yield case.finding("exchange", None, cause, f"{shown}.", _shown(weights, case))


def _own_factors(case: Case, weights: Weights) -> Found:
    """Every other combination; the worker that is farthest from 1."""
    usual = sorted(weights.own.values())[len(weights.own) // 2] if len(case.sides) > 2 else 1.0
    far = max(weights.own, key=lambda label: abs(weights.own[label] - usual))
    odd = [rank for rank in range(len(case.sides)) if any(not _near(w, usual) for w in weights.of(rank))]
    rank = far[0] if len(odd) == 1 else None
    if rank is not None:
        cause = f"rank {rank}'s gradient counts {weights.own[far]:.3g} times"
    else:
        cause = "the workers' gradients are scaled differently before they are added"
    yield case.finding("exchange", rank, cause, _shown(weights, case))


RULES: list[Callable[[Case, Weights], Found]] = [
    _stale,
    _decayed,
    _not_exchanged,
    _alike,
    _left_out,
    _some_passes,
    _mean_of_means,
    _own_factors,
]
"""In order; the last one always says something."""
