"""Data sets of bytes and labels, and batches: selected samples, augmented, and normalised for a model."""

import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from shoal import nested
from shoal.data.seeds import hashed, seed_for
from shoal.nested import Nested

SCALE_BITS = 16
BYTES = 256
"""The vocabulary of text: its bytes."""


@dataclass(frozen=True, eq=False)
class Affine:
    """x ↦ scale·x + shift for each channel: (x/255 − mean) / std in one multiplication and one addition.

    The scale is rounded to 16 bits, a relative change below 2e-5; the standard deviations are published to four
    digits. A byte times such a scale fits into float32's 24 bits, so the product is exact and only the sum is rounded.
    Every device and every kernel, fused or not, therefore computes the same bits, at any position in a batch.

    >>> affine = Affine.normalising(torch.tensor([0.5]), torch.tensor([0.25]), dims=3)
    >>> affine(torch.tensor([[[[0, 255]]]], dtype=torch.uint8))
    tensor([[[[-2.0000,  2.0000]]]])
    """

    scale: Tensor
    shift: Tensor
    one_scale: float | None
    """The scale, if it is the same for all channels."""

    @classmethod
    def normalising(cls, mean: Tensor, std: Tensor, dims: int) -> "Affine":
        """For inputs of `dims` dimensions: with three, channels come first; otherwise there is one channel."""
        per_channel = (-1, 1, 1) if dims == 3 else (1,) * dims
        scales = [rounded(1 / (255 * value), SCALE_BITS) for value in std.tolist()]
        scale = torch.tensor(scales, device=mean.device)
        shift = -255 * mean * scale
        one_scale = scales[0] if len(set(scales)) == 1 else None
        return cls(scale.view(per_channel), shift.view(per_channel), one_scale)

    def __call__(self, inputs: Tensor) -> Tensor:
        """The uint8 batch as float32."""
        scale, shift = self.scale, self.shift
        if shift.device != inputs.device:
            scale, shift = scale.to(inputs.device), shift.to(inputs.device)
        if self.one_scale is not None:
            # One pass; addcmul would be slower than two.
            return torch.add(shift, inputs.float(), alpha=self.one_scale)
        return inputs.float().mul_(scale).add_(shift)


def rounded(value: float, bits: int) -> float:
    """The nearest number with this many significant bits.

    >>> rounded(1 / 3, 4)
    0.34375
    """
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(mantissa, bits)), exponent - bits)


@dataclass(frozen=True)
class Augment:
    """Shift each picture by up to `shift` pixels in each direction, filling with black; mirror it half of the time.

    The random bits of a sample are a hash of (seed, epoch, sample index), so the result does not depend on how a step
    is divided among workers and micro-batches, and a resumed run needs no saved state.

    Cost: one gather over the batch, on the batch's device.
    """

    shift: int = 4
    mirror: bool = True

    def __call__(self, pictures: Tensor, indices: Tensor, seed: int, epoch: int) -> Tensor:
        """The augmented batch [batch, channels, height, width]; `indices` are the indices of its samples."""
        bits = hashed(indices.to(pictures.device), seed_for("augment", seed, epoch))
        places = 2 * self.shift + 1
        down = (bits & 0xFFFF) % places
        right = (bits >> 16 & 0xFFFF) % places
        mirrored = (bits >> 32 & 1).bool() & self.mirror

        channels, height, width = pictures.shape[1:]
        rows = torch.arange(height, device=pictures.device) + down[:, None]
        columns = torch.arange(width, device=pictures.device)
        columns = torch.where(mirrored[:, None], columns.flip(0), columns) + right[:, None]
        padded = F.pad(pictures, (self.shift,) * 4)
        pixels = rows[:, :, None] * padded.shape[-1] + columns[:, None, :]
        source = pixels.flatten(1).unsqueeze(1).expand(-1, channels, -1)
        return padded.flatten(2).gather(2, source).view(pictures.shape)


class Draw(NamedTuple):
    """What the random numbers of a sample follow from, together with its number."""

    seed: int
    epoch: int


EVALUATION = Draw(0, -1)
"""All evaluations draw the same."""

Task = Literal["classification", "regression", "text", "own"]
"""`own`: labels are no single tensor, or absent, and only the user's loss knows what they mean."""


@dataclass(frozen=True, eq=False)
class Split:
    """Samples and their labels. Each is a tensor or, in data of the user's own, nested tensors (`shoal.nested`)."""

    inputs: Nested
    """uint8, [samples, *shape]; data of the user's own may be float32 or int64."""
    labels: Nested
    """int64 [samples]; regression: float32 [samples, outputs] or [samples]; text: int64 [samples, length].

    None: the samples have no labels beside their inputs."""

    def __len__(self) -> int:
        return nested.length(self.inputs)

    def __repr__(self) -> str:
        shape = nested.mapped(lambda tensor: tuple(tensor.shape[1:]), self.inputs)
        return f"Split({len(self):,} samples of shape {shape} on {self.device})"

    @property
    def device(self) -> torch.device:
        """Where the samples are."""
        return nested.first(self.inputs).device

    @property
    def columns(self) -> tuple[Nested, ...]:
        """Inputs and, if there are any, labels."""
        return (self.inputs,) if self.labels is None else (self.inputs, self.labels)

    @property
    def classes(self) -> Tensor | None:
        """The labels of all samples, if they are one tensor and known: partitions by labels need them."""
        return self.labels if isinstance(self.labels, Tensor) else None

    def to(self, device: torch.device | str) -> "Split":
        """The same samples on a device; batches are selected there."""
        return Split(
            *(nested.mapped(lambda tensor: tensor.to(device), each) for each in (self.inputs, self.labels))
        )

    def take(self, indices: Tensor) -> "Split":
        """A split of these samples only."""
        return Split(_rows(self.inputs, indices), _rows(self.labels, indices))

    # What samples that are read on demand (`on_demand.split`) do otherwise.

    is_stream = False
    """Whether samples can only be read in their order."""

    @property
    def signature(self) -> str:
        """The same on two workers if they have the same samples in the same order; one pass over the samples."""
        return "".join(f"{checksum(leaf):08x}" for _, leaf in nested.leaves(self.columns))

    def read(self, indices: Tensor, draw: Draw = EVALUATION) -> "Split":
        """These samples in memory, as the draw makes them."""
        del draw  # they are what they are
        return self.take(indices.to(self.device))

    def representative(self) -> Nested:
        """Inputs from which mean and standard deviation are computed."""
        return self.inputs

    def read_ahead(self, parts: Callable[[], Iterable[Tensor]], draw: Draw = EVALUATION) -> None:
        """The indices that will be read next, in parts; samples in memory need no preparation."""

    def close(self) -> None:
        """End what reads ahead."""


def _rows(column: Nested, indices: Tensor) -> Nested:
    if isinstance(column, Tensor):
        return column.index_select(0, indices)
    return nested.mapped(lambda tensor: tensor.index_select(0, indices), column)


def checksum(tensor: Tensor) -> int:
    """A checksum of the values, wherever they are."""
    return zlib.crc32(memoryview(tensor.detach().cpu().contiguous().numpy()))  # pyright: ignore[reportArgumentType]


class Batch(NamedTuple):
    """The samples of one worker in one step, ready for the model."""

    inputs: Nested
    """float32, normalised; int64 tokens for text."""
    labels: Nested
    """What the loss gets beside the outputs: labels or, of samples without any, the inputs."""
    num_samples: int

    @property
    def device(self) -> torch.device:
        """Where the samples are."""
        return nested.first(self.inputs).device

    @property
    def num_classified(self) -> int:
        """How many labels are classes: of nested labels and numbers none; those below 0 are left out by a loss."""
        if (
            not isinstance(self.labels, Tensor)
            or self.labels is self.inputs
            or self.labels.is_floating_point()
        ):
            return 0
        return int((self.labels >= 0).sum())

    def part(self, start: int, end: int) -> "Batch":
        """The samples from `start` to `end` − 1, in the same memory."""
        inputs = nested.part(self.inputs, start, end)
        labels = inputs if self.labels is self.inputs else nested.part(self.labels, start, end)
        return Batch(inputs, labels, max(min(end, self.num_samples) - start, 0))

    def parts(self, sizes: Sequence[int]) -> "list[Batch]":
        """Parts of these numbers of samples, one after the other."""
        ends = [*accumulate(sizes)]
        return [self.part(end - size, end) for size, end in zip(sizes, ends, strict=True)]

    @staticmethod
    def joined(batches: "Sequence[Batch]") -> "Batch":
        """The samples of all batches, one after the other."""
        if len(batches) == 1:
            return batches[0]
        inputs = nested.cat([each.inputs for each in batches])
        is_labelled = batches[0].labels is not batches[0].inputs
        labels = nested.cat([each.labels for each in batches]) if is_labelled else inputs
        return Batch(inputs, labels, sum(each.num_samples for each in batches))


@dataclass(frozen=True, eq=False)
class DataSet:
    """Training, validation and test samples, and the normalisation of their bytes.

    >>> pictures = torch.full((4, 1, 2, 2), 255, dtype=torch.uint8)
    >>> split = Split(pictures, torch.tensor([0, 1, 0, 1]))
    >>> mean, std = torch.tensor([0.5]), torch.tensor([0.25])
    >>> data = DataSet("white", "classification", split, None, split, 2, mean, std)
    >>> data.batch(data.train, torch.tensor([3, 0])).inputs.unique()
    tensor([2.0000])
    """

    name: str
    task: Task
    train: Split
    validation: Split | None
    test: Split
    outputs: int
    """Classes; 256 for text; the width of the target for regression; 0 if only the user's loss knows."""
    mean: Tensor | None = field(default=None, repr=False)
    """Mean of each channel, for pixels from 0 to 1; None for text, and for inputs that are no pixels."""
    std: Tensor | None = field(default=None, repr=False)
    """Standard deviation of each channel; None where there is no mean."""
    augment: Augment | None = None
    affine: Affine | None = field(init=False, repr=False)
    """The conversion of bytes to floats by mean and std; None where there are none."""

    def __post_init__(self) -> None:
        affine = None
        if self.mean is not None and self.std is not None:
            affine = Affine.normalising(self.mean, self.std, len(self.input_shape))
        object.__setattr__(self, "affine", affine)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input; () for nested inputs."""
        return tuple(self.train.inputs.shape[1:]) if isinstance(self.train.inputs, Tensor) else ()

    @property
    def nbytes(self) -> int:
        """Bytes of all samples and labels."""
        splits = [split for split in (self.train, self.validation, self.test) if split is not None]
        return sum(leaf.nbytes for split in splits for _, leaf in nested.leaves(split.columns))

    def to(self, device: torch.device | str) -> "DataSet":
        """The same data set on a device, so that only the indices of a batch are copied to it."""
        return replace(
            self,
            train=self.train.to(device),
            validation=None if self.validation is None else self.validation.to(device),
            test=self.test.to(device),
            mean=None if self.mean is None else self.mean.to(device),
            std=None if self.std is None else self.std.to(device),
        )

    def close(self) -> None:
        """End the processes that read ahead, if there are any."""
        for split in (self.train, self.validation, self.test):
            if split is not None:
                split.close()

    def batch(self, split: Split, indices: Tensor) -> Batch:
        """The samples at these indices of a split, normalised: (x/255 − mean) / std.

        Three passes over the batch, no Python per sample. The bits do not depend on how a batch is divided or on the
        device (see `Affine`).
        """
        return self._batch(split.read(indices))

    def training_batch(self, indices: Tensor, seed: int, epoch: int) -> Batch:
        """The training samples at these indices, augmented if the data set has an augmentation, then normalised.

        The augmentation of a sample is a pure function of (seed, epoch, sample index): see `Augment`.
        """
        picked = self.train.read(indices, Draw(seed, epoch))
        if self.augment is not None:
            picked = Split(self.augment(picked.inputs, indices, seed, epoch), picked.labels)
        return self._batch(picked)

    def _batch(self, picked: Split) -> Batch:
        inputs = ready = picked.inputs
        if self.affine is not None:
            ready = self.affine(inputs)
        elif isinstance(inputs, Tensor) and inputs.dtype == torch.uint8:
            ready = inputs.long()  # bytes without statistics are text
        labels = ready if picked.labels is None else picked.labels
        return Batch(ready, labels, nested.length(inputs))
