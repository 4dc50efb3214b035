"""Some samples of a source as tensors: each must have the form of the first one."""

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from shoal import nested
from shoal.config.custom import no_exit
from shoal.data.dataset import EVALUATION, Draw, Split
from shoal.data.on_demand.source import Source
from shoal.data.own.samples import some_of
from shoal.errors import DataError, ShoalError
from shoal.nested import Nested


class Form(NamedTuple):
    """The first sample, whose form all others must have, and how many classes or tokens there are, if that is known."""

    first: Any
    outputs: int | None
    types: str

    @classmethod
    def of(cls, source: Source, outputs: int | None) -> "Form":
        """The form of the samples of a source."""
        first = _sample(source, 0, EVALUATION)
        found = some_of([first], f"data {source.name}", lambda _: _shown(source, 0))
        return cls(first, outputs, _types(found))


Part = tuple[Tensor, Draw]
"""Numbers of samples that are read together, and their draw."""
Read = tuple[Nested, Nested]
"""Inputs and labels."""


@dataclass(frozen=True)
class Fault:
    """An error of a loader process, told to its worker; torch would add a traceback to the sentence."""

    message: str
    hint: str


def read(source: Source, numbers: Sequence[int], draw: Draw, form: Form) -> Split:
    """The samples with these numbers, in memory; a DataError names the sample at fault.

    Numbers are in ascending order where the source is a stream.
    """

    def shown(position: int) -> str:
        return _shown(source, numbers[position - 1] if position else 0)

    samples = [form.first, *(_sample(source, number, draw) for number in numbers)]
    where = f"data {source.name}"
    found = some_of(samples, where, shown)
    if (types := _types(found)) != form.types:
        each = (_types(some_of([form.first, sample], where, shown)) for sample in samples)
        wrong = next(position for position, types in enumerate(each) if types != form.types)
        raise DataError(
            f"{where}: sample {shown(wrong)} is {types}, and sample {shown(0)} is {form.types}",
            "All samples need one type.",
        )
    if form.outputs is not None:
        _check_labels(source, numbers, found.labels, form.outputs)
    return Split(*(nested.part(column, 1, len(samples)) for column in (found.inputs, found.labels)))


def read_or_fault(source: Source, form: Form, part: Part) -> Read | Fault:
    """As `read`, in a loader process."""
    numbers, draw = part
    try:
        found = read(source, numbers.tolist(), draw, form)
        return found.inputs, found.labels
    except ShoalError as error:
        return Fault(error.message, error.hint)


def _sample(source: Source, number: int, draw: Draw) -> Any:
    try:
        with no_exit(f"data {source.name}"):
            return source.sample(number, draw)
    except ShoalError:
        raise
    except Exception as error:  # any exception: this runs the user's code
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise DataError(
            f"data {source.name}: sample {_shown(source, number)} cannot be read: {type(error).__name__}: {error}",
            f"at {last.filename}:{last.lineno}",
        ) from error


def _types(split: Split) -> str:
    return ", ".join(str(leaf.dtype).removeprefix("torch.") for _, leaf in nested.leaves(split.columns))


def _check_labels(source: Source, numbers: Sequence[int], labels: Nested, outputs: int) -> None:
    """Refuse labels that are no class or token: below 0 only tokens may be, which a loss leaves out."""
    if not isinstance(labels, Tensor) or labels.is_floating_point():
        return
    wrong = (labels >= outputs) | ((labels < 0) & (labels.ndim == 1))
    if wrong.any():
        position = int(wrong.reshape(len(labels), -1).any(1).nonzero()[0])
        raise DataError(
            f"data {source.name}: sample {_shown(source, numbers[position - 1] if position else 0)} has label "
            f"{int(labels[position][wrong[position]].flatten()[0])}, expected 0 to {outputs - 1}",
            "--data.outputs N says how many there are.",
        )


def _shown(source: Source, number: int) -> str:
    """The number of a sample, and its file if it has one."""
    place = source.place(number)
    return f"{number:,} ({place})" if place else f"{number:,}"
