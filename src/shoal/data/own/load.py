"""The data set that a function of the user's own returns."""

import inspect
import os
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from shoal import nested
from shoal.config.custom import calling, check_options, load
from shoal.config.kinds import check
from shoal.config.sections.data import Loaders
from shoal.config.sections.values import Count, Custom, Fraction
from shoal.data.dataset import Augment, DataSet, Split, Task
from shoal.data.holdout import hold_out
from shoal.data.on_demand.own import is_data_set, own_source
from shoal.data.on_demand.split import on_demand as read_on_demand
from shoal.data.own.files import read_path
from shoal.data.own.samples import is_array, split_of
from shoal.errors import DataError, ShoalError, unknown
from shoal.nested import Nested

SPLITS = ("train", "validation", "test")
TEST_FRACTION = 0.2
"""The part of the samples that becomes the test set if the function returns none."""


def load_own(config: Custom) -> DataSet:
    """Call the function, and read what it returns: into memory, or on demand if `--data.loaders` is given.

    It returns samples in one of the forms that `split_of` takes, the path of a folder or file, a pair (train, test)
    of these, or a dictionary with the keys train, test and validation.
    """
    options = dict(config.options)
    with calling("data", config):
        function = load("data", config)
        validation = taken(options, function, "validation", Fraction, 0.0)
        loaders = taken(options, function, "loaders", Loaders | None, None)
        outputs = taken(options, function, "outputs", Count | None, None)
        given = replace(config, options=tuple(options.items()))
        check_options("data", given, function)
        try:
            found = function(**options)
            splits = _splits(found, config.name, None if loaders is None else (outputs, loaders))
        except ShoalError:
            raise
        except Exception as error:  # any exception: this runs the user's code
            raise DataError(
                f"data {config.name} failed with {type(error).__name__}: {error}", _fix_of(error)
            ) from error
    return hold_out(data_set(config.name, splits, outputs), validation, seed=0)


def _fix_of(error: Exception) -> str:
    """Where a missing file was looked for; else the line that failed."""
    if isinstance(error, FileNotFoundError):
        return f"Paths are relative to the current directory: {os.getcwd()}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"at {last.filename}:{last.lineno}"


def data_set(
    name: str, splits: Mapping[str, Split], outputs: int | None = None, augment: Augment | None = None
) -> DataSet:
    """The splits as a data set: labels decide the task; pixels are normalised by the training set's statistics."""
    train = splits["train"]
    for key, split in splits.items():
        for what, mine, first in (
            ("inputs", split.inputs, train.inputs),
            ("labels", split.labels, train.labels),
        ):
            if _form(mine) != _form(first):
                raise DataError(
                    f"data {name}: the {what} of {key} are {_form(mine)}, and those of train {_form(first)}"
                )
    task, outputs = _task(name, splits, outputs)
    is_bytes = isinstance(train.inputs, Tensor) and train.inputs.dtype == torch.uint8
    mean, std = _statistics(train.representative()) if is_bytes and task != "text" else (None, None)
    whole = DataSet(
        name, task, train, splits.get("validation"), splits.get("test", train), outputs, mean, std, augment
    )
    return whole if "test" in splits else _with_test(whole)


def _with_test(data: DataSet) -> DataSet:
    """The same data with a part of the training samples as test set, always the same ones."""
    if len(data.train) < 2:
        raise DataError(f"data {data.name} has {len(data.train)} sample, and no test set")
    held = hold_out(replace(data, validation=None), TEST_FRACTION, seed=0)
    assert held.validation is not None
    warnings.warn(
        f"data {data.name} has no test set: {len(held.validation):,} of {len(data.train):,} samples are used as one",
        stacklevel=2,
    )
    return replace(held, validation=data.validation, test=held.validation)


def taken(options: dict[str, Any], function: Callable[..., Any], name: str, kind: Any, otherwise: Any) -> Any:
    """Take one of our settings out of the options, unless the function has a parameter of that name."""
    if name not in options or name in inspect.signature(function).parameters:
        return otherwise
    return check(kind, options.pop(name), f"data.{name}")


def _splits(found: Any, name: str, on_demand: tuple[int | None, int] | None) -> dict[str, Split]:
    where = f"data {name}"
    if isinstance(found, str | Path):
        return read_path(Path(found))
    if found is None:
        raise DataError(
            f"{where} returned None", "Return the samples: the last line of the function is `return …`."
        )
    parts: dict[str, Any]
    if isinstance(found, Mapping):
        parts = dict(cast(Mapping[str, Any], found))
        if not parts.keys() & set(SPLITS) and all(
            is_array(each) or isinstance(each, list) for each in parts.values()
        ):
            parts = {"train": parts}
        for key in parts.keys() - set(SPLITS):
            raise DataError(f"{where}: {unknown('split', str(key), SPLITS)}")
        if parts.get("train") is None:
            raise DataError(f"{where} returned no training samples, only {', '.join(parts) or 'nothing'}")
    elif isinstance(found, tuple) and not any(map(is_array, pair := cast(tuple[Any, ...], found))):
        if len(pair) != 2:
            raise DataError(
                f"{where} returned a tuple of {len(pair)} values",
                'Return (train, test), or a dictionary with the keys "train", "validation" and "test".',
            )
        parts = {"train": pair[0], "test": pair[1]}
    else:
        parts = {"train": found}
    return {
        key: _one_split(part, f"{name}, {key}", on_demand) for key, part in parts.items() if part is not None
    }


def _one_split(part: Any, name: str, on_demand: tuple[int | None, int] | None) -> Split:
    if on_demand is not None and is_data_set(part):
        return read_on_demand(own_source(part, name), *on_demand)
    where = f"data {name}"
    if not isinstance(part, str | Path):
        return split_of(part, where)
    splits = read_path(Path(part))
    if set(splits) != {"train"}:
        raise DataError(
            f"{where}: {part} has splits of its own: {', '.join(splits)}", "Return its path alone."
        )
    return splits["train"]


def _task(name: str, splits: Mapping[str, Split], outputs: int | None) -> tuple[Task, int]:
    first = splits["train"].labels
    if not isinstance(first, Tensor):
        return "own", 0
    if first.is_floating_point():
        return "regression", first.shape[1] if first.ndim > 1 else 1
    task = "classification" if first.ndim == 1 else "text"
    known = {key: split.classes for key, split in splits.items()}
    for key, labels in known.items() if task == "classification" else ():
        if labels is not None and labels.numel() and (smallest := int(labels.min())) < 0:
            raise DataError(
                f"data {name}: sample {int(labels.argmin()):,} of {key} has label {smallest}; labels begin at 0",
                "For a loss that leaves labels out, make them one of several: (input, {'label': label}).",
            )
    if outputs is not None:
        return task, outputs
    largest = [int(labels.max()) for labels in known.values() if labels is not None]
    if len(largest) < len(known):
        raise DataError(
            f"data {name} is read on demand, and does not say how many "
            f"{'classes' if task == 'classification' else 'tokens'} it has",
            "Give --data.outputs N, or give the data set an attribute `targets` with all labels.",
        )
    return task, max(1, 1 + max(largest))


def _statistics(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel, for pixels from 0 to 1, from how often each byte occurs."""
    channels = pixels.unbind(1) if pixels.ndim == 4 else [pixels]
    counts = torch.stack([channel.reshape(-1).bincount(minlength=256) for channel in channels]).double()
    values, total = torch.arange(256, dtype=torch.float64) / 255, counts.sum(1)
    mean = counts @ values / total
    std = (counts @ values.square() / total - mean.square()).clamp_min(0).sqrt()
    return mean.float(), std.clamp_min(1e-3).float()  # constant pictures would divide by zero


def _form(column: Nested | None) -> str:
    """Shape and dtype of one sample."""
    if column is None:
        return "absent"
    shown = [
        f"{path}{' ' * bool(path)}{str(leaf.dtype).removeprefix('torch.')} of shape {list(leaf.shape[1:])}"
        for path, leaf in nested.leaves(column)
    ]
    return ", ".join(shown)
