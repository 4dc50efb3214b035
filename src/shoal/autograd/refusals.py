"""Errors of the engine: they name the shapes, and the line of the user's program that called an operation."""

import linecache
import os
import sys
from collections.abc import Sequence
from itertools import islice
from types import CodeType
from typing import Any

from torch import Tensor

from shoal.errors import AutogradError

Site = tuple[CodeType, int]
"""A code object and the offset of the instruction that was running in it."""

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def call_site() -> Site:
    """The innermost caller outside this engine.

    Two attribute reads per frame. Computing the line number costs more than a small operation, so only an error
    does it.
    """
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


def is_ours(filename: str) -> bool:
    """Whether a file belongs to this engine."""
    return filename.startswith(_HERE)


def describe(site: Site) -> str:
    """`train.py:12: loss = a * b`."""
    code, offset = site
    line = next(islice(code.co_positions(), offset // 2, None), (None,))[0] or code.co_firstlineno
    text = linecache.getline(code.co_filename, line).strip()
    place = f"{os.path.basename(code.co_filename)}:{line}"
    return f"{place}: {text}" if text else place


def mixed(what: str, operation: str, values: list[Any]) -> AutogradError:
    """Inputs of several dtypes or devices. Torch would compute in the wider dtype, and change the gradients' dtype."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    kinds = [str(getattr(tensor, what)).removeprefix("torch.") for tensor in tensors]
    return AutogradError(
        f"{operation} mixes {what}s: {' and '.join(kinds)}, of shapes {_shapes(tensors)}, at {describe(call_site())}",
        f"Convert one side with .to({what}) before it becomes a Variable.",
    )


def failed(operation: str, values: list[Any], attributes: dict[str, Any], reason: Exception) -> AutogradError:
    """The kernel failed: devices differ, or shapes do not fit."""
    if len({value.device for value in values if isinstance(value, Tensor)}) > 1:
        return mixed("device", operation, values)
    options = "".join(f", {key}={value}" for key, value in attributes.items())
    return AutogradError(
        f"{operation} cannot take shapes {_shapes(values)}{options}, at {describe(call_site())}",
        str(reason).splitlines()[0],
    )


def foreign(operation: str, shape: Sequence[int], is_on_another: bool) -> AutogradError:
    """A variable that is not on this tape: its gradient would silently be zero."""
    why = "belongs to another tape" if is_on_another else "was recorded before its tape was reset"
    return AutogradError(
        f"{operation} received a variable of shape {tuple(shape)} that {why}, at {describe(call_site())}",
        "Enter its tape (with tape: …), or take a copy: Variable(x.value)."
        if is_on_another
        else "Compute it again, or keep what you need as a leaf: Variable(x.value).",
    )


def depends_on_data(what: str, where: str) -> AutogradError:
    """An operation that cannot be compiled: it depends on values that the graph does not have yet."""
    return AutogradError(
        f"{what} depends on the data of a graph that is being compiled, at {where}",
        "A compiled graph does the same for all data: use ops.where, or do not compile this function.",
    )


def _shapes(values: Sequence[Any]) -> str:
    return " and ".join(str(tuple(v.shape)) if isinstance(v, Tensor) else repr(v) for v in values)
