"""A torch data set of the user's own, read by index or, if it is iterable, forward."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from shoal.data.dataset import Draw
from shoal.data.division.subsets import labels_of
from shoal.data.on_demand.seeded import seeded
from shoal.data.on_demand.source import Source
from shoal.errors import DataError


def is_data_set(found: Any) -> bool:
    """Whether samples can be read from it one by one, and are not in memory already."""
    has_indices = hasattr(found, "__getitem__") and hasattr(found, "__len__")
    in_memory = isinstance(found, tuple | list | dict | str | torch.Tensor) or hasattr(found, "__array__")
    return isinstance(found, IterableDataset) or (has_indices and not in_memory)


def own_source(dataset: Any, name: str) -> Source:
    """The source of a data set, map-style or iterable."""
    try:
        length = len(dataset)
    except TypeError:
        raise DataError(
            f"data {name}: {type(dataset).__name__} has no length, so an epoch has no end",
            "Give it a method __len__ with the number of its samples.",
        ) from None
    if not length:
        raise DataError(f"data {name} has no samples")
    kind = Stream if isinstance(dataset, IterableDataset) else Indexed
    return kind(dataset, name, length)


def _known_labels(dataset: Any, length: int) -> Tensor | None:
    """The class of every sample, where the data set has them in one place."""
    try:
        labels = labels_of(dataset)
    except (DataError, TypeError, ValueError, RuntimeError):
        return None
    is_known = len(labels) == length and not labels.is_floating_point() and labels.ndim == 1
    return labels.long() if is_known else None


class Indexed(Source):
    """A map-style data set. Whatever it draws for a sample follows from (seed, epoch, number)."""

    def __init__(self, dataset: Any, name: str, length: int) -> None:
        self.name = name
        self._dataset, self._length = dataset, length
        self.labels = _known_labels(dataset, length)

    def __len__(self) -> int:
        return self._length

    def sample(self, number: int, draw: Draw) -> Any:
        """The data set's own, with its draws."""
        with seeded("sample", *draw, number):
            return self._dataset[number]


class Stream(Source):
    """An iterable data set, which gives the same samples in the same order to all workers.

    A worker keeps the samples that it is asked for and skips the others, so sample k goes to the worker whose share
    holds k, and a resumed run skips forward. Each epoch begins a new pass; `set_epoch` is called first if there is one.
    """

    is_stream = True

    def __init__(self, dataset: Any, name: str, length: int) -> None:
        self.name = name
        self._dataset, self._length = dataset, length
        self.labels = _known_labels(dataset, length)
        self._pass: Iterator[Any] | None = None
        self._next, self._draw = 0, Draw(0, 0)

    def __len__(self) -> int:
        return self._length

    def sample(self, number: int, draw: Draw) -> Any:
        """Go forward to this sample; a new pass begins if it lies behind."""
        if self._pass is None or draw != self._draw or number < self._next:
            if hasattr(self._dataset, "set_epoch"):
                self._dataset.set_epoch(max(0, draw.epoch))
            with seeded("pass", *draw):
                self._pass = iter(self._dataset)
            self._next, self._draw = 0, draw
        sample: Any = None
        while self._next <= number:
            try:
                with seeded("sample", *draw, self._next):
                    sample = next(self._pass)
            except StopIteration:
                self._pass = None
                raise DataError(
                    f"data {self.name} ended after {self._next:,} samples, and its length is {self._length:,}",
                    "Give every process all samples, not divided by get_worker_info(), and count them in __len__.",
                ) from None
            self._next += 1
        return sample
