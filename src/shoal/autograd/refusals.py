"""Errors for operations that cannot be recorded, with the shapes and the line that called them."""

from typing import Any

from torch import Tensor

from shoal.autograd.site import call_site, describe
from shoal.autograd.variable import Variable
from shoal.errors import AutogradError


def mixed_dtypes(operation: str, values: list[Any]) -> AutogradError:
    """Inputs of different dtypes: torch would compute in the wider one, and gradients would have the wrong dtype."""
    kinds = [str(tensor.dtype).removeprefix("torch.") for tensor in _tensors(values)]
    return _mixed("dtypes", operation, values, kinds)


def failed(operation: str, values: list[Any], attributes: dict[str, Any], reason: Exception) -> AutogradError:
    """The kernel failed: devices differ, or shapes do not fit."""
    devices = [str(tensor.device) for tensor in _tensors(values)]
    if len(set(devices)) > 1:
        return _mixed("devices", operation, values, devices)
    options = "".join(f", {key}={value}" for key, value in attributes.items())
    return AutogradError(
        f"{operation} cannot take shapes {_shapes(values)}{options}, at {describe(call_site())}",
        str(reason).splitlines()[0],
    )


def foreign(operation: str, operand: Variable, tape: object) -> AutogradError:
    """A variable that is not on this tape: its gradient would silently be zero."""
    home = operand.generation() if operand.generation is not None else None
    if home is tape or home is None:
        why = "was recorded before its tape was reset"
        fix = "Compute it again, or keep what you need as a leaf: Variable(x.value)."
    else:
        why = "belongs to another tape"
        fix = "Enter its tape (with tape: …), or take a copy: Variable(x.value)."
    what = f"{operation} received a variable of shape {tuple(operand.shape)}"
    return AutogradError(f"{what} that {why}, at {describe(call_site())}", fix)


def _mixed(what: str, operation: str, values: list[Any], kinds: list[str]) -> AutogradError:
    shapes = _shapes(_tensors(values))
    return AutogradError(
        f"{operation} mixes {what}: {' and '.join(kinds)}, of shapes {shapes}, at {describe(call_site())}",
        f"Convert one side with .to({what[:-1]}) before it becomes a Variable.",
    )


def _tensors(values: list[Any]) -> list[Tensor]:
    return [value for value in values if isinstance(value, Tensor)]


def _shapes(values: list[Any] | list[Tensor]) -> str:
    return " and ".join(str(tuple(v.shape)) if isinstance(v, Tensor) else repr(v) for v in values)
