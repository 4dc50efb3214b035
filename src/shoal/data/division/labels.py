"""The labels of any torch data set, found where data sets keep them."""

from collections.abc import Sequence, Sized
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from shoal.errors import DataError

PLACES = ("targets", "labels")
"""Where data sets keep what is to be learnt: torchvision's pictures, and most others."""


def length_of(dataset: Any) -> int:
    """How many samples a data set has; a sentence for one that has no length, and for one without samples."""
    kind = type(dataset).__name__
    if not isinstance(dataset, Sized) or not hasattr(dataset, "__getitem__"):
        raise DataError(
            f"{kind} cannot be divided: it has no length, or its samples have no numbers",
            "Give a map-style data set, with __len__ and __getitem__.",
        )
    if not len(dataset):
        raise DataError(f"{kind} cannot be divided: it has no samples")
    return len(dataset)


def labels_of(dataset: Any, given: Sequence[Any] | Tensor | None = None) -> Tensor:
    """One whole number for each sample: as given, else from `.targets` or `.labels`; words are numbered by alphabet.

    A `Subset` has those of the data set it is a part of, and a `TensorDataset` its last tensor. The samples
    themselves are never read: that would load every picture.

    >>> data = TensorDataset(torch.zeros(3, 2), torch.tensor([5, 7, 5]))
    >>> labels_of(Subset(data, [0, 1])), labels_of(data, ["cat", "dog", "cat"])
    (tensor([5, 7]), tensor([0, 1, 0]))
    """
    found = _find(dataset) if given is None else given
    if found is None:
        raise DataError(
            f"{type(dataset).__name__} shows no labels: it has neither .targets nor .labels",
            "Give them: labels=[…], one for each sample.",
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
