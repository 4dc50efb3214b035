"""Some samples of a source as tensors: each must have the form of the first one."""

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.config.custom import no_exit
from shoal.data.dataset import EVALUATION, Draw, Split
from shoal.data.on_demand.source import Source
from shoal.data.own.samples import pair_of, split_of
from shoal.errors import DataError, ShoalError

Part = tuple[Tensor, Draw]
"""Numbers of samples that are read together, and their draw."""
Read = tuple[Tensor, Tensor]


class Form(NamedTuple):
    """Shape and type of one input and of one label; the first label that is too large, if labels are classes."""

    inputs: tuple[list[int], torch.dtype]
    labels: tuple[list[int], torch.dtype]
    outputs: int | None = None


@dataclass(frozen=True)
class Fault:
    """An error of a loader process, told to its worker; torch would add a traceback to the sentence."""

    message: str
    hint: str


def read(source: Source, numbers: Sequence[int], draw: Draw, form: Form | None = None) -> Split:
    """The samples with these numbers, in memory; a DataError names the sample at fault.

    Numbers are in ascending order where the source is a stream.
    """
    pairs = [_pair(source, number, draw) for number in numbers]
    expected = form or _form_of(pairs[0])
    for number, pair in zip(numbers, pairs, strict=True):
        for what, value, (shape, dtype) in zip(("input", "label"), pair, expected[:2], strict=True):
            if list(value.shape) != shape or value.dtype != dtype:
                raise DataError(
                    f"{_where(source, number)}: the {what} has shape {list(value.shape)} and type "
                    f"{_name_of(value.dtype)}, and the first sample {shape} and {_name_of(dtype)}",
                    "All samples need one shape and one type: resize, crop or pad them"
                    f"{', for example with --data.size 64' * source.has_pictures}.",
                )
            if what == "label" and expected.outputs is not None and not dtype.is_floating_point:
                _check_label(source, number, value, expected.outputs)
    inputs, labels = (torch.stack(values) for values in zip(*pairs, strict=True))
    return split_of((inputs, labels), source.name, numbers)


def form_of(source: Source, outputs: int | None) -> Form:
    """The form of all samples, by the first one."""
    return _form_of(_pair(source, 0, EVALUATION))._replace(outputs=outputs)


def _form_of(pair: tuple[Tensor, Tensor]) -> Form:
    inputs, labels = ((list(each.shape), each.dtype) for each in pair)
    return Form(inputs, labels)


def read_or_fault(source: Source, form: Form, part: Part) -> Read | Fault:
    """As `read`, in a loader process."""
    numbers, draw = part
    try:
        found = read(source, numbers.tolist(), draw, form)
        return found.inputs, found.labels
    except ShoalError as error:
        return Fault(error.message, error.hint)


def _pair(source: Source, number: int, draw: Draw) -> tuple[Tensor, Tensor]:
    try:
        with no_exit(f"data {source.name}"):
            sample = source.sample(number, draw)
    except ShoalError:
        raise
    except Exception as error:  # any exception: this runs the user's code
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise DataError(
            f"{_where(source, number)} cannot be read: {type(error).__name__}: {error}",
            f"at {last.filename}:{last.lineno}",
        ) from error
    return pair_of(sample, number, source.name)


def _check_label(source: Source, number: int, label: Tensor, outputs: int) -> None:
    smallest, largest = (int(each) for each in label.aminmax()) if label.numel() else (0, 0)
    if smallest < 0 or largest >= outputs:
        wrong = smallest if smallest < 0 else largest
        raise DataError(
            f"{_where(source, number)} has label {wrong}, expected 0 to {outputs - 1}",
            "--data.outputs N says how many there are.",
        )


def _where(source: Source, number: int) -> str:
    place = source.place(number)
    return f"data {source.name}: sample {number:,}{f' ({place})' * bool(place)}"


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
