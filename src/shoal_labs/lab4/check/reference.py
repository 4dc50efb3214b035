"""The lab's network in one process: what the split model must equal."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

PARAMETERS = tuple(
    f"{layer}.{part}" for layer in ("conv1", "conv2", "fc1", "fc2") for part in ("weight", "bias")
)
RELUS = ("conv1", "conv2", "fc1")
"""Layers that a ReLU follows."""
TOLERANCE = 1e-4


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
