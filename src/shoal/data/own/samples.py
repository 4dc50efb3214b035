"""Samples of the user's own, as two tensors: from tensors, arrays, a torch Dataset, a DataLoader or any iterable."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from shoal.config.checks import memory_bytes
from shoal.data.dataset import Split
from shoal.errors import DataError

OBJECT_BYTES = 1000
"""What Python and torch need for the two tensors of a sample, beside their numbers."""
MEMORY_SHARE = 0.5
"""The part of the machine's memory that samples may take while they are read: an endless iterable is noticed by it."""


def is_array(value: object) -> bool:
    """Whether a value is a tensor or an array, and no single sample."""
    return isinstance(value, Tensor | np.ndarray)


def split_of(found: Any, where: str, numbers: Sequence[int] | None = None) -> Split:
    """The samples of a split; `where` names it in errors, and `numbers` its samples if it is a part of a larger one.

    A pair of tensors or arrays is inputs and labels. A Dataset, a list or another iterable has pairs (input, label),
    a DataLoader has batches of them; all are read once, from the beginning to the end.
    """
    if isinstance(found, tuple) and len(cast(tuple[Any, ...], found)) == 2 and is_array(found[0]):
        inputs, labels = (torch.as_tensor(part) for part in cast(tuple[Any, Any], found))
    else:
        inputs, labels = _read(found, where)
    if inputs.ndim == 0 or labels.ndim == 0 or len(inputs) != len(labels):
        sizes = [f"{len(part):,}" if part.ndim else "no" for part in (inputs, labels)]
        raise DataError(f"{where} has {sizes[0]} inputs and {sizes[1]} labels")
    if len(inputs) == 0:
        raise DataError(f"{where} has no samples")
    numbers = numbers or range(len(inputs))
    return Split(_as_inputs(inputs, where, numbers), _as_labels(labels, where, numbers))


def _as_inputs(inputs: Tensor, where: str, numbers: Sequence[int]) -> Tensor:
    if inputs.is_complex():
        raise DataError(f"{where}: inputs are complex numbers; return real ones")
    if inputs.is_floating_point():
        _check_finite(inputs, "input", where, numbers)
        inputs = inputs.float()
    elif inputs.dtype != torch.uint8:
        inputs = inputs.long()
    if inputs.dtype == torch.uint8 and inputs.ndim == 3:  # grey pictures without a dimension for channels
        inputs = inputs.unsqueeze(1)
    return inputs.detach().contiguous()


def _as_labels(labels: Tensor, where: str, numbers: Sequence[int]) -> Tensor:
    if not labels.is_floating_point():
        # A column of whole numbers is one class for each sample, not a text of one token.
        labels = labels.squeeze(1) if labels.ndim == 2 and labels.shape[1] == 1 else labels
        return labels.long().detach().contiguous()
    _check_finite(labels, "label", where, numbers)
    return labels.float().detach().contiguous()


def _check_finite(values: Tensor, what: str, where: str, numbers: Sequence[int]) -> None:
    bad = ~values.reshape(len(values), -1).isfinite().all(1)
    if bad.any():
        raise DataError(
            f"{where}: the {what} of sample {numbers[int(bad.nonzero()[0])]:,} is not finite (NaN or infinite)",
            "Remove such samples, or replace their values.",
        )


def _read(found: Any, where: str) -> tuple[Tensor, Tensor]:
    if isinstance(found, DataLoader):
        batches = [
            pair_of(batch, index, where, "batch") for index, batch in enumerate(cast(Iterable[Any], found))
        ]
        if not batches:
            raise DataError(f"{where} has no samples")
        inputs, labels = zip(*batches, strict=True)
        return _joined(inputs, "inputs", where), _joined(labels, "labels", where)
    pairs, num_bytes, most = list[tuple[Tensor, Tensor]](), 0, MEMORY_SHARE * memory_bytes()
    for index, sample in enumerate(_samples(found, where)):
        pairs.append(pair_of(sample, index, where))
        num_bytes += OBJECT_BYTES + sum(part.nbytes for part in pairs[-1])
        if num_bytes > most:
            raise DataError(
                f"{where} has more than {index:,} samples, {num_bytes / 2**30:.1f} GiB: too many for this machine's "
                "memory",
                "Return fewer samples; an iterable must end.",
            )
    if not pairs:
        raise DataError(f"{where} has no samples")
    _check_repeatable(found, pairs[0], where)
    inputs, labels = zip(*pairs, strict=True)
    return _stacked(inputs, "input", where), _stacked(labels, "label", where)


def _samples(found: Any, where: str) -> Iterator[Any]:
    """The samples in order; those of a Dataset by their indices."""
    if _has_indices(found):
        return (found[index] for index in range(len(found)))
    if hasattr(found, "__iter__"):
        return iter(found)
    if hasattr(found, "__getitem__"):
        raise DataError(f"{where}: {type(found).__name__} has no length", "Give it a method __len__.")
    raise DataError(
        f"{where} is a value of type {type(found).__name__}, and no samples",
        "Return tensors (inputs, labels), a torch Dataset, an iterable of pairs, or the path of a folder or file.",
    )


def _has_indices(found: Any) -> bool:
    """Whether samples are read by their indices. An IterableDataset inherits the method, and cannot."""
    return (
        hasattr(found, "__getitem__") and hasattr(found, "__len__") and not isinstance(found, IterableDataset)
    )


def _check_repeatable(found: Any, first: tuple[Tensor, Tensor], where: str) -> None:
    """Warn of a Dataset that draws at random: its samples are read once, so the draw would be the same every epoch."""
    if _has_indices(found):
        again = pair_of(found[0], 0, where)
        if not all(torch.equal(one, other) for one, other in zip(first, again, strict=True)):
            warnings.warn(
                f"{where}: sample 0 differs when it is read again. Samples are read once and then stay the same, so a "
                "random augmentation is drawn once, not in every epoch",
                stacklevel=2,
            )


def pair_of(sample: Any, index: int, where: str, what: str = "sample") -> tuple[Tensor, Tensor]:
    """Input and label of one sample, or of a batch of a DataLoader, as tensors."""
    place = f"{where}: {what} {index:,}"
    if isinstance(sample, Mapping):
        keys = [repr(key) for key in cast(Mapping[Any, Any], sample)]
        raise DataError(
            f"{place} is a dictionary with the keys {', '.join(keys[:8])}, and no pair (input, label)",
            f"Return pairs: [(sample[{keys[0] if keys else '…'}], sample[{keys[-1] if keys else '…'}]) "
            "for sample in data].",
        )
    if isinstance(sample, tuple | list) and len(cast(list[Any], sample)) != 2:
        raise DataError(
            f"{place} has {len(cast(list[Any], sample))} values, and is no pair (input, label)",
            "Return two values for each sample: several inputs become one tensor, which the model takes apart. Lists "
            "of all inputs and all labels become tensors: (torch.tensor(inputs), torch.tensor(labels)).",
        )
    try:
        value, label = sample
    except (TypeError, ValueError):
        raise DataError(
            f"{place} is a value of type {type(sample).__name__}, and no pair (input, label)"
        ) from None
    of_it = f"of {what} {index:,}"
    return _tensor(value, f"the input {of_it}", where), _tensor(label, f"the label {of_it}", where)


def _tensor(value: Any, what: str, where: str) -> Tensor:
    if type(value).__module__.startswith("PIL."):
        picture = torch.from_numpy(np.array(value))
        return picture.unsqueeze(0) if picture.ndim == 2 else picture.permute(2, 0, 1)
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{where}: {what} is a value of type {type(value).__name__}, and cannot become a tensor: {error}",
            "Return a tensor, an array, a number or a list of numbers; join several tensors in one, and number words.",
        ) from error


def _joined(batches: tuple[Tensor, ...], what: str, where: str) -> Tensor:
    """The batches of a DataLoader, one after the other."""
    for index, batch in enumerate(batches):
        if batch.ndim == 0 or batch.shape[1:] != batches[0].shape[1:]:
            raise DataError(
                f"{where}: the {what} of batch {index:,} have shape {list(batch.shape)}, and those of batch 0 "
                f"{list(batches[0].shape)}",
                "All samples need one shape: pad sequences to the longest of all, not of their batch.",
            )
    return torch.cat(batches)


def _stacked(values: tuple[Tensor, ...], what: str, where: str) -> Tensor:
    for index, value in enumerate(values):
        if value.shape != values[0].shape:
            raise DataError(
                f"{where}: the {what} of sample {index:,} has shape {list(value.shape)}, and that of sample 0 "
                f"{list(values[0].shape)}",
                "All samples need one shape: resize, crop or pad them.",
            )
    return torch.stack(values)
