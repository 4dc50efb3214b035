"""Samples of the user's own, as nested tensors: from tensors, arrays, a torch Dataset, a DataLoader or any iterable."""

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from shoal import nested
from shoal.config.checks import memory_bytes
from shoal.data.dataset import Split
from shoal.errors import DataError
from shoal.nested import Nested

OBJECT_BYTES = 1000
"""What Python and torch need for the two tensors of a sample, beside their numbers."""
MEMORY_SHARE = 0.5
"""The part of the machine's memory that samples may take while they are read: an endless iterable is noticed by it."""


class Sample(NamedTuple):
    """One sample, or a batch or all of them: its input, and its label if the input does not hold it."""

    input: Nested
    label: Nested | None


def is_array(value: object) -> bool:
    """Whether a value is a tensor or an array of numbers, and no single sample."""
    return isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.dtype != object)


def is_columns(value: object) -> bool:
    """Whether a value is an array, or a dictionary, dataclass or tuple of arrays: the samples are their rows.

    The columns of a dictionary may be lists of numbers, too.
    """
    if isinstance(value, Mapping):
        columns = cast(Mapping[Any, Any], value).values()
        return len(columns) > 0 and all(is_columns(each) or isinstance(each, list) for each in columns)
    if not nested.is_nest(value) or (hasattr(value, "__getitem__") and not isinstance(value, tuple)):
        return is_array(value)  # a list has samples, and so has a Dataset that is a dataclass
    children = nested.children(value).values()
    return len(children) > 0 and all(map(is_columns, children))


def split_of(found: Any, where: str) -> Split:
    """The samples of a split; `where` names it in errors.

    A pair of columns (see `is_columns`) is inputs and labels; one alone is inputs that hold the labels, or have none. A
    Dataset, a list or another iterable has pairs (input, label) or single inputs, a DataLoader has batches of them; all
    are read once, from the beginning to the end.
    """
    if is_columns(found):
        inputs, labels = _apart(found, "0", where, "batch")
    else:
        inputs, labels = _read(found, where)
    split = Split(inputs, labels)
    leaves = [leaf for column in split.columns for _, leaf in nested.leaves(column)]
    if not leaves:
        raise DataError(f"{where}: the samples have no tensors")
    if any(leaf.ndim == 0 or len(leaf) != len(leaves[0]) for leaf in leaves):
        counts = [count for count in (_counts(inputs, "inputs"), _counts(labels, "labels")) if count]
        raise DataError(
            f"{where} has {' and '.join(counts)}",
            'Each sample needs one of each. Training and test samples without labels: {"train": …, "test": …}.',
        )
    if len(split) == 0:
        raise DataError(f"{where} has no samples")
    return Split(_as_inputs(inputs, where), _as_labels(labels, where))


def some_of(samples: Sequence[Any], where: str, shown: "Shown") -> Split:
    """Samples that were read one by one, as `split_of` reads all; errors show a position among them by `shown`."""
    apart = [_apart(sample, shown(position), where) for position, sample in enumerate(samples)]
    inputs, labels = _together(tuple(zip(*apart, strict=True)), where, "sample", shown)
    return Split(_as_inputs(inputs, where, shown), _as_labels(labels, where, shown))


Shown = Callable[[int], str]
"""The number of a sample in an error, and where it lies, by its position."""


def _position(position: int) -> str:
    return f"{position:,}"


def _counts(column: Nested | None, what: str) -> str:
    found = [
        f"{len(leaf):,} {what}{path}" if leaf.ndim else f"no {what}{path}"
        for path, leaf in nested.leaves(column)
    ]
    return ", ".join(found)


def _as_inputs(inputs: Nested, where: str, shown: Shown = _position) -> Nested:
    if not isinstance(inputs, Tensor):
        return _as_leaves(inputs, "input", where, shown)
    if inputs.is_complex():
        raise DataError(f"{where}: inputs are complex numbers; return real ones")
    if inputs.is_floating_point():
        _check_finite(inputs, "input", where, shown)
        inputs = inputs.float()
    elif inputs.dtype != torch.uint8:
        inputs = inputs.long()
    if inputs.dtype == torch.uint8 and inputs.ndim == 3:  # grey pictures without a dimension for channels
        inputs = inputs.unsqueeze(1)
    return inputs.detach().contiguous()


def _as_leaves(column: Nested, what: str, where: str, shown: Shown) -> Nested:
    """Numbers of a nest: floating-point ones in float32, whole ones in int64; masks and bytes stay as they are."""

    def ready(tensors: list[Tensor], path: str) -> Tensor:
        (tensor,) = tensors
        if tensor.is_complex():
            raise DataError(f"{where}: the {what}s{path} are complex numbers; return real ones")
        if tensor.is_floating_point():
            _check_finite(tensor, f"{what}{path}", where, shown)
            tensor = tensor.float()
        elif tensor.dtype not in (torch.uint8, torch.bool):
            tensor = tensor.long()
        return tensor.detach().contiguous()

    return nested.joined(ready, [column])


def _as_labels(labels: Nested | None, where: str, shown: Shown = _position) -> Nested | None:
    if not isinstance(labels, Tensor):
        return None if labels is None else _as_leaves(labels, "label", where, shown)
    if not labels.is_floating_point():
        # A column of whole numbers is one class for each sample, not a text of one token.
        labels = labels.squeeze(1) if labels.ndim == 2 and labels.shape[1] == 1 else labels
        return labels.long().detach().contiguous()
    _check_finite(labels, "label", where, shown)
    return labels.float().detach().contiguous()


def _check_finite(values: Tensor, what: str, where: str, shown: Shown) -> None:
    bad = ~values.reshape(len(values), -1).isfinite().all(1)
    if bad.any():
        raise DataError(
            f"{where}: the {what} of sample {shown(int(bad.nonzero()[0]))} is not finite (NaN or infinite)",
            "Remove such samples, or replace their values.",
        )


def _read(found: Any, where: str) -> Sample:
    if isinstance(found, DataLoader):
        batches = [
            _apart(batch, _position(index), where, "batch")
            for index, batch in enumerate(cast(Iterable[Any], found))
        ]
        if not batches:
            raise DataError(f"{where} has no samples")
        return _together(tuple(zip(*batches, strict=True)), where, "batch")
    samples, num_bytes, most = list[Sample](), 0, MEMORY_SHARE * memory_bytes()
    for index, sample in enumerate(_samples(found, where)):
        samples.append(_apart(sample, _position(index), where))
        num_bytes += OBJECT_BYTES + sum(leaf.nbytes for _, leaf in nested.leaves(samples[-1]))
        if num_bytes > most:
            raise DataError(
                f"{where} has more than {index:,} samples, {num_bytes / 2**30:.1f} GiB: too many for this machine's "
                "memory",
                "Return fewer samples; an iterable must end.",
            )
    if not samples:
        raise DataError(f"{where} has no samples")
    _check_repeatable(found, samples[0], where)
    return _together(tuple(zip(*samples, strict=True)), where, "sample")


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
        "Return tensors (inputs, labels), a dictionary of tensors, a torch Dataset, an iterable of samples, or the "
        "path of a folder or file.",
    )


def _has_indices(found: Any) -> bool:
    """Whether samples are read by their indices. An IterableDataset inherits the method, and cannot."""
    return (
        hasattr(found, "__getitem__") and hasattr(found, "__len__") and not isinstance(found, IterableDataset)
    )


def _check_repeatable(found: Any, first: Sample, where: str) -> None:
    """Warn of a Dataset that draws at random: its samples are read once, so the draw would be the same every epoch."""
    if _has_indices(found):
        again = _apart(found[0], "0", where)
        pairs = zip(nested.leaves(first), nested.leaves(again), strict=False)
        if not all(torch.equal(one, other) for (_, one), (_, other) in pairs):
            warnings.warn(
                f"{where}: sample 0 differs when it is read again. Samples are read once and then stay the same, so a "
                "random augmentation is drawn once, not in every epoch",
                stacklevel=2,
            )


def _apart(sample: Any, number: str, where: str, what: str = "sample") -> Sample:
    """The input and the label of a sample, or of a batch of them.

    A tuple of two is (input, label); anything else that holds tensors is an input which holds the label, or has none.
    """
    place = f"{where}: {what} {number}"
    of_it = f"of {what} {number}"
    if isinstance(sample, tuple | list) and not hasattr(sample, "_fields"):
        values = cast(list[Any], sample)
        if len(values) not in (1, 2):
            raise DataError(
                f"{place} has {len(values)} values, and is no pair (input, label)",
                "Return two values for each sample; several inputs are one tuple: ((first, second), label). Lists of "
                "all inputs and all labels become tensors: (torch.tensor(inputs), torch.tensor(labels)).",
            )
        label = _tensors(values[1], f"the label {of_it}", where) if len(values) == 2 else None
        return Sample(_tensors(values[0], f"the input {of_it}", where), label)
    if nested.is_nest(sample) or is_array(sample):
        return Sample(_tensors(sample, f"the input {of_it}", where), None)
    raise DataError(f"{place} is a value of type {type(sample).__name__}, and no pair (input, label)")


def _tensors(value: Any, what: str, where: str) -> Nested:
    """A value of a sample with tensors in place of arrays and numbers. A list is one tensor, and a tuple of numbers."""
    if isinstance(value, Mapping) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        children = nested.children(value)
        return nested.rebuilt(
            value, [_tensors(child, f"{what}, {key!r},", where) for key, child in children.items()]
        )
    if isinstance(value, tuple) and any(map(_is_input, cast(tuple[Any, ...], value))):
        values = cast(tuple[Any, ...], value)
        return nested.rebuilt(
            values, [_tensors(child, f"{what}, [{at}],", where) for at, child in enumerate(values)]
        )
    return _tensor(value, what, where)


def _is_input(value: Any) -> bool:
    """Whether an element of a tuple is an input on its own; numbers of a tuple are one vector."""
    return value.ndim > 0 if is_array(value) else nested.is_nest(value) and not isinstance(value, list)


def _tensor(value: Any, what: str, where: str) -> Tensor:
    if type(value).__module__.startswith("PIL."):
        picture = torch.from_numpy(np.array(value))
        return picture.unsqueeze(0) if picture.ndim == 2 else picture.permute(2, 0, 1)
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{where}: {what} is a value of type {type(value).__name__}, and cannot become a tensor: {error}",
            "Return a tensor, an array, a number or a list of numbers, or a dictionary of them; number words.",
        ) from error


def _together(
    columns: tuple[Sequence[Nested | None], ...], where: str, unit: str, shown: Shown = _position
) -> Sample:
    """All samples, or all batches of a DataLoader, as one."""
    inputs, labels = columns
    if all(label is None for label in labels):
        return Sample(_joined(inputs, "input", where, unit, shown), None)
    return Sample(_joined(inputs, "input", where, unit, shown), _joined(labels, "label", where, unit, shown))


def _joined(values: Sequence[Nested | None], kind: str, where: str, unit: str, shown: Shown) -> Nested:
    is_batch = unit == "batch"
    kinds, has, that = (f"{kind}s", "have", "those") if is_batch else (kind, "has", "that")

    def join(tensors: list[Tensor], path: str) -> Tensor:
        shapes = [tensor.shape[is_batch:] for tensor in tensors]
        for index, (tensor, shape) in enumerate(zip(tensors, shapes, strict=True)):
            if shape != shapes[0] or (is_batch and tensor.ndim == 0):
                raise DataError(
                    f"{where}: the {kinds}{path} of {unit} {shown(index)} {has} shape {list(tensor.shape)}, "
                    f"and {that} of {unit} {shown(0)} {list(tensors[0].shape)}",
                    "All samples need one shape: pad sequences to the longest of all, not of their batch."
                    if is_batch
                    else "All samples need one shape: resize, crop or pad them (pictures at a path: --data.size N).",
                )
            if tensor.dtype != tensors[0].dtype:
                raise DataError(
                    f"{where}: the {kinds}{path} of {unit} {shown(index)} {'are' if is_batch else 'is'} "
                    f"{tensor.dtype}, and {that} of {unit} {shown(0)} {tensors[0].dtype}",
                    "All samples need one type: convert them where they are read, as with .float().",
                )
        return torch.cat(tensors) if is_batch else torch.stack(tensors)

    try:
        return nested.joined(join, values)
    except nested.StructureError as error:
        raise DataError(
            f"{where}: the {kinds}{error.path} of {unit} {shown(error.number)} {'are' if is_batch else 'is'} "
            f"{error.shown}, and {that} of {unit} {shown(0)} {error.expected}",
            "All samples need the same keys, in the same order.",
        ) from None
