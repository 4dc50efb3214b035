"""Writes a gradient as a combination of others: the coefficients say what an exchange did to the workers' gradients."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

MOST = 20_000
"""Elements that determine the coefficients; all of them check the result."""

Tensors = Mapping[str, Tensor]


class Combination(NamedTuple):
    """target = Σ coefficient · part + rest."""

    coefficients: list[float]
    rest: float
    """The largest element of the rest, as a part of the target's."""


def combination(target: Tensors, parts: Sequence[Tensors], names: Sequence[str]) -> Combination:
    """The coefficients with the smallest squared rest; a tensor that a part does not have counts as zeros."""
    vector = _joined(target, names, target)
    columns = [_joined(part, names, target) for part in parts]
    largest = float(vector.abs().max()) if len(vector) else 0.0
    if not columns or not largest:
        return Combination([0.0] * len(columns), 0.0 if not largest else 1.0)
    matrix = torch.stack(columns, dim=1)
    norms = matrix.norm(dim=0).clamp(min=1e-300)
    some = slice(None, None, max(1, len(vector) // MOST))
    solution = torch.linalg.lstsq((matrix / norms)[some], vector[some, None], driver="gelsd").solution[:, 0]
    found = solution / norms
    rest = float((vector - matrix @ found).abs().max()) / largest
    return Combination([float(each) for each in found], rest)


def _joined(tensors: Tensors, names: Sequence[str], like: Tensors) -> Tensor:
    return torch.cat(
        [
            (tensors[name] if name in tensors else torch.zeros_like(like[name])).double().reshape(-1)
            for name in names
        ]
    )
