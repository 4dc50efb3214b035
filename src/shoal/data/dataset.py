"""A data set is bytes and labels; a batch is a selection of them, made into numbers a model takes."""

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from shoal.data.augment import Augment

Task = Literal["classification", "regression", "text"]


@dataclass(frozen=True, eq=False)
class Split:
    """Samples and what is to be learnt of them."""

    inputs: Tensor
    """uint8, [samples, *shape]."""
    labels: Tensor
    """int64 [samples]; regression: float32 [samples, outputs]; text: int64 [samples, length], next bytes."""

    def __len__(self) -> int:
        return len(self.inputs)

    def __repr__(self) -> str:
        return f"Split({len(self):,} samples of shape {tuple(self.inputs.shape[1:])} on {self.inputs.device})"

    def to(self, device: torch.device | str) -> "Split":
        """The same samples on a device; batches are then selected there."""
        return Split(self.inputs.to(device), self.labels.to(device))

    def take(self, indices: Tensor) -> "Split":
        """A split of these samples only."""
        return Split(self.inputs.index_select(0, indices), self.labels.index_select(0, indices))


@dataclass(frozen=True, eq=False)
class Batch:
    """The samples of one worker in one step, ready for the model."""

    inputs: Tensor
    """float32, normalised; int64 tokens for text."""
    labels: Tensor
    num_samples: int


@dataclass(frozen=True, eq=False)
class DataSet:
    """Training, validation and test samples, and how their bytes become a model's inputs.

    >>> pictures = torch.full((4, 1, 2, 2), 255, dtype=torch.uint8)
    >>> split = Split(pictures, torch.tensor([0, 1, 0, 1]))
    >>> mean, std = torch.tensor([0.5]), torch.tensor([0.25])
    >>> data = DataSet("white", "classification", split, None, split, 2, mean, std)
    >>> data.batch(data.train, torch.tensor([3, 0])).inputs.unique()
    tensor([2.])
    """

    name: str
    task: Task
    train: Split
    validation: Split | None
    test: Split
    outputs: int
    """Classes; 256 for text; the width of the target for regression."""
    mean: Tensor | None = field(default=None, repr=False)
    """Of each channel, pixels running from 0 to 1; None for text."""
    std: Tensor | None = field(default=None, repr=False)
    """Standard deviation of each channel; None for text."""
    augment: Augment | None = None
    _offset: Tensor | None = field(init=False, repr=False)
    _scale: Tensor | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        offset = scale = None
        if self.mean is not None and self.std is not None:
            per_channel = (-1, 1, 1) if len(self.input_shape) == 3 else (1,) * len(self.input_shape)
            offset = (255 * self.mean).view(per_channel)
            scale = (1 / (255 * self.std)).view(per_channel)
        # Worked out once: a batch of 64 digits takes some 60 µs, of which this would be a tenth.
        object.__setattr__(self, "_offset", offset)
        object.__setattr__(self, "_scale", scale)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.train.inputs.shape[1:])

    @property
    def nbytes(self) -> int:
        """Memory the samples take, to see whether they fit on a device."""
        splits = [split for split in (self.train, self.validation, self.test) if split is not None]
        return sum(math.prod((*part.shape, part.itemsize)) for s in splits for part in (s.inputs, s.labels))

    def to(self, device: torch.device | str) -> "DataSet":
        """The same data set on a device, so that making a batch moves nothing but the indices."""
        return replace(
            self,
            train=self.train.to(device),
            validation=None if self.validation is None else self.validation.to(device),
            test=self.test.to(device),
            mean=None if self.mean is None else self.mean.to(device),
            std=None if self.std is None else self.std.to(device),
        )

    def batch(self, split: Split, indices: Tensor) -> Batch:
        """The samples at these indices of a split, normalised: (x/255 − mean) / std.

        Three passes over the batch and no Python per sample. Every element is computed alike wherever it
        stands, so dividing a batch does not change a bit of it.
        """
        indices = indices.to(split.inputs.device)
        labels = split.labels.index_select(0, indices)
        return Batch(self._normalised(split.inputs.index_select(0, indices)), labels, len(indices))

    def training_batch(self, indices: Tensor, seed: int, epoch: int) -> Batch:
        """The training samples at these indices, augmented if the data set says so, then normalised.

        How a sample is changed is a pure function of (seed, epoch, its index): see `Augment`.
        """
        if self.augment is None:
            return self.batch(self.train, indices)
        indices = indices.to(self.train.inputs.device)
        pictures = self.augment(self.train.inputs.index_select(0, indices), indices, seed, epoch)
        return Batch(self._normalised(pictures), self.train.labels.index_select(0, indices), len(indices))

    def _normalised(self, inputs: Tensor) -> Tensor:
        if self._offset is None or self._scale is None:
            return inputs.to(torch.int64)
        # In place on the fresh float tensor, which is still in cache: faster than addcmul or a table of 256
        # floats.
        device = inputs.device
        return inputs.to(torch.float32).sub_(self._offset.to(device)).mul_(self._scale.to(device))
