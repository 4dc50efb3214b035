"""Nested tensors: a tensor, or a tuple, list, dictionary or dataclass of nested tensors; and calling a model with them.

The first dimension of every tensor counts the samples. What is no tensor (None, a model's cache) is passed on as it is.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

Nested = Any
"""A tensor, or a tuple, list, dictionary or dataclass of nested tensors."""


class StructureError(ValueError):
    """Two nested tensors have other keys, fields or lengths."""

    def __init__(self, number: int, path: str, shown: str, expected: str) -> None:
        super().__init__(f"{shown}, expected {expected}")
        self.number, self.path, self.shown, self.expected = number, path, shown, expected


def is_nest(value: object) -> bool:
    """Whether a value holds nested tensors, and is none itself."""
    return isinstance(value, Mapping | tuple | list) or _is_dataclass(value)


def _is_dataclass(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def children(nest: Any) -> dict[str, Any]:
    """What a nest holds, by key, field or number."""
    if isinstance(nest, Mapping):
        return {str(key): value for key, value in cast(Mapping[Any, Any], nest).items()}
    if _is_dataclass(nest):
        return {each.name: getattr(nest, each.name) for each in dataclasses.fields(nest) if each.init}
    return {str(number): value for number, value in enumerate(nest)}


def rebuilt(nest: Any, children: Sequence[Any]) -> Any:
    """A nest of the same kind with other children; any mapping becomes a dictionary."""
    if _is_dataclass(nest):
        names = (each.name for each in dataclasses.fields(nest) if each.init)
        return type(nest)(**dict(zip(names, children, strict=True)))
    if isinstance(nest, Mapping):
        return dict(zip(cast(Mapping[Any, Any], nest), children, strict=True))
    return type(nest)(*children) if hasattr(nest, "_fields") else type(nest)(children)


def mapped(function: Callable[[Tensor], Any], nested: Nested) -> Nested:
    """The same nest with the function of every tensor.

    >>> mapped(len, {"tokens": torch.zeros(2, 3), "pair": (torch.zeros(4), None)})
    {'tokens': 2, 'pair': (4, None)}
    """
    if isinstance(nested, Tensor):
        return function(nested)
    if not is_nest(nested):
        return nested
    return rebuilt(nested, [mapped(function, each) for each in children(nested).values()])


def leaves(nested: Nested) -> Iterator[tuple[str, Tensor]]:
    """Every tensor with its path, in order.

    >>> [path for path, _ in leaves({"tokens": torch.zeros(2), "pair": (torch.zeros(2), torch.zeros(2))})]
    ["['tokens']", "['pair'][0]", "['pair'][1]"]
    """
    if isinstance(nested, Tensor):
        yield "", nested
    elif is_nest(nested):
        for key, child in children(nested).items():
            for path, leaf in leaves(child):
                yield _step(nested, key) + path, leaf


def _step(nest: Any, key: str) -> str:
    """How a program reads a child of a nest."""
    return f".{key}" if _is_dataclass(nest) else f"[{key!r}]" if isinstance(nest, Mapping) else f"[{key}]"


def first(nested: Nested) -> Tensor:
    """The first tensor: all have one device and one number of samples."""
    return nested if isinstance(nested, Tensor) else next(leaf for _, leaf in leaves(nested))


def length(nested: Nested) -> int:
    """The number of samples."""
    return len(first(nested))


def part(nested: Nested, start: int, end: int) -> Nested:
    """The samples from `start` to `end` − 1, in the same memory. A number that all samples share stays as it is.

    >>> part({"x": torch.arange(4), "y": (torch.arange(4),)}, 1, 3)
    {'x': tensor([1, 2]), 'y': (tensor([1, 2]),)}
    """
    if isinstance(nested, Tensor):
        return nested[start:end] if nested.ndim else nested
    return mapped(lambda tensor: part(tensor, start, end), nested)


def chunk_sizes(num_samples: int, chunks: int) -> list[int]:
    """The sizes of so many chunks, equal up to one sample: the first are the larger ones.

    >>> chunk_sizes(7, 3)
    [3, 2, 2]
    """
    least, more = divmod(num_samples, chunks)
    return [least + (number < more) for number in range(chunks)]


def cat(parts: Sequence[Nested]) -> Nested:
    """The samples of all parts, one after the other."""
    return joined(lambda tensors, path: torch.cat(tensors), parts)


def joined(join: Callable[[list[Tensor], str], Tensor], values: Sequence[Nested], path: str = "") -> Nested:
    """One nest of several with the same structure: `join` makes one tensor of those at a path."""
    like = values[0]
    for number, value in enumerate(values):
        if (shown := _structure(value)) != (expected := _structure(like)):
            raise StructureError(number, path, shown, expected)
    if isinstance(like, Tensor):
        return join(list(values), path)
    if not is_nest(like):
        return like
    every = [children(value) for value in values]
    return rebuilt(
        like, [joined(join, [each[key] for each in every], path + _step(like, key)) for key in every[0]]
    )


def _structure(value: Nested) -> str:
    """The kind of a nest and its keys, in words."""
    if isinstance(value, Tensor):
        return "a tensor"
    if isinstance(value, Mapping):
        return (
            f"a dictionary with the keys {', '.join(map(repr, cast(Mapping[Any, Any], value))) or '(none)'}"
        )
    if is_nest(value) and not _is_dataclass(value):
        return f"a {type(value).__name__} of {len(value)}"
    return "absent" if value is None else f"a {type(value).__name__}"


def described(nested: Nested) -> str:
    """Shape and dtype of every tensor, for an error.

    >>> described({"x": torch.zeros(2, 3), "y": torch.tensor([1])})
    "['x']: [2, 3] (float32), ['y']: [1] (int64)"
    """
    shown = [
        f"{path}{': ' * bool(path)}{list(leaf.shape)} ({str(leaf.dtype).removeprefix('torch.')})"
        for path, leaf in leaves(nested)
    ]
    return ", ".join(shown) or _structure(nested)


_ARGUMENTS: WeakKeyDictionary[nn.Module, frozenset[str] | None] = WeakKeyDictionary()


def call(model: nn.Module, inputs: Nested, run: Callable[..., Any] | None = None) -> Any:
    """The outputs of a model: `model(x)`, `model(*inputs)` for a tuple, `model(**inputs)` for a dictionary.

    Of a dictionary, the model gets the keys that its `forward` declares; the loss gets all of them. A dataclass is one
    argument, and so is every nest for an `nn.Sequential`: its first layer takes it. `run` is called in place of the
    model: its compiled code.

    >>> class Sum(nn.Module):
    ...     def forward(self, x, y): return x + y
    >>> call(Sum(), {"y": torch.ones(2), "x": torch.ones(2), "labels": None})
    tensor([2., 2.])
    """
    run = run or model
    if isinstance(inputs, Tensor) or isinstance(model, nn.Sequential) or _is_dataclass(inputs):
        return run(inputs)
    if isinstance(inputs, Mapping):
        named, taken = cast(Mapping[str, Any], inputs), _arguments(model)
        return run(**(named if taken is None else {key: named[key] for key in named if key in taken}))
    return run(*inputs)


def _arguments(model: nn.Module) -> frozenset[str] | None:
    """The names that a model's forward takes; None if it takes any. Inspected once for each model."""
    if model not in _ARGUMENTS:
        parameters = inspect.signature(model.forward).parameters.values()
        takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
        _ARGUMENTS[model] = None if takes_any else frozenset(each.name for each in parameters)
    return _ARGUMENTS[model]
