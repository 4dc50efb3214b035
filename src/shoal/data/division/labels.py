"""The labels and the length of any torch data set."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from shoal.errors import DataError

PLACES = ("targets", "labels")
"""Attributes in which data sets keep labels: torchvision's, and most others."""


def length_of(dataset: Any) -> int:
    """The number of samples of a data set; a DataError if it has no length or no samples."""
    kind = type(dataset).__name__
    try:
        length = len(dataset) if hasattr(dataset, "__getitem__") else None
    except TypeError:  # also of a tensor without dimensions
        length = None
    if length is None:
        raise DataError(
            f"{kind} cannot be divided: it has no __len__ or no __getitem__",
            "Pass a map-style data set.",
        )
    if not length:
        raise DataError(f"{kind} cannot be divided: it has no samples")
    return length


def labels_of(dataset: Any, given: Sequence[Any] | Tensor | None = None) -> Tensor:
    """One integer for each sample: `given`, else `.targets` or `.labels`; strings are numbered alphabetically.

    A `Subset` has the labels of its data set, and a `TensorDataset` its last tensor. The samples themselves are not
    read: that would load every picture.

    >>> data = TensorDataset(torch.zeros(3, 2), torch.tensor([5, 7, 5]))
    >>> labels_of(Subset(data, [0, 1])), labels_of(data, ["cat", "dog", "cat"])
    (tensor([5, 7]), tensor([0, 1, 0]))
    """
    found = _find(dataset) if given is None else given
    if found is None:
        raise DataError(
            f"{type(dataset).__name__} has neither .targets nor .labels",
            "Pass labels=[…], one for each sample.",
        )
    if not isinstance(found, Tensor) and len(found) and isinstance(found[0], str):
        numbers = {word: number for number, word in enumerate(sorted(set(found)))}
        return torch.tensor([numbers[word] for word in found])
    return torch.as_tensor(found)


def _find(dataset: Any) -> Any | None:
    for place in PLACES:
        if getattr(dataset, place, None) is not None:
            return getattr(dataset, place)
    if isinstance(dataset, Subset):
        whole = _find(dataset.dataset)
        indices = torch.as_tensor(dataset.indices, dtype=torch.int64)
        return None if whole is None else labels_of(dataset.dataset, whole)[indices]
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) > 1:
        return dataset.tensors[-1]
    return None
