"""Joins the workers' batches to one machine's."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from shoal.nested import children, is_nest, rebuilt


def joined(values: Sequence[Any]) -> Any:
    """The samples of all values, one after the other; what is no batch, and the same everywhere, stays as it is.

    >>> joined([{"x": torch.ones(2, 3), "names": ["a", "b"]}, {"x": torch.ones(1, 3), "names": ["c"]}])["names"]
    ['a', 'b', 'c']
    """
    first = values[0]
    if len(values) == 1:
        return first
    if isinstance(first, Tensor):
        return torch.cat([*values]) if first.ndim else first
    if isinstance(first, np.ndarray):
        return np.concatenate([*values])
    if isinstance(first, list) and not any(isinstance(each, Tensor) or is_nest(each) for each in first):
        return [each for value in values for each in value]
    if is_nest(first):
        every = [children(value) for value in values]
        made = [joined([each[key] for each in every]) for key in every[0]]
        if isinstance(first, Mapping) and type(first) is not dict:
            return _like(cast(Mapping[Any, Any], first), made)
        return rebuilt(first, made)
    return first


def _like(first: Mapping[Any, Any], made: Sequence[Any]) -> Any:
    """A mapping of the same kind, as tokenizers make theirs; a dictionary where the kind cannot be made from one."""
    found = dict(zip(first, made, strict=True))
    try:
        return cast(Any, type(first))(found)
    except TypeError:
        return found
