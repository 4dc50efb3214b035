"""A tensor that the tape can follow."""

import weakref
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn, final

import torch
from torch import Tensor

from shoal.autograd.site import call_site, describe
from shoal.errors import AutogradError

Hook = Callable[[Tensor], object]
"""Is given a leaf's tensor when its gradient is complete."""


@final
class Generation(weakref.ref[Any]):
    """A tape between two resets: what a computed variable remembers of the tape it was recorded on.

    It is a weak reference, so that variables do not keep their tape alive: tape → entries → variables is
    then no circle, and the memory of a step is given back the moment its tape goes, without waiting for the
    garbage collector.
    """

    __slots__ = ()


@final
class Variable:
    """A tensor and its place in the computation.

    A variable that you make is a *leaf*: data or a parameter, usable on every tape. A variable that an
    operation makes is *recorded*: it belongs to the tape of that moment and becomes useless when the tape
    is reset.

    >>> a = Variable(torch.tensor([1.0, 2.0]), name="a")
    >>> a * a + 1.0
    Variable(tensor([2., 5.]))
    """

    __slots__ = ("__weakref__", "generation", "hooks", "index", "name", "value")

    value: Tensor
    name: str | None
    generation: Generation | None
    index: int
    hooks: dict[int, Hook] | None

    def __init__(self, value: Tensor, name: str | None = None) -> None:
        which = f"{name or 'this one'} {tuple(value.shape)}"
        if not value.is_floating_point():
            raise AutogradError(
                f"a variable holds floating-point numbers, but {which} holds {_short(value.dtype)}",
                "Pass integers (labels, indices) as plain tensors, or convert: x.to(torch.float32).",
            )
        if value.requires_grad:
            raise AutogradError(
                f"a variable's tensor is left alone by torch.autograd, but {which} requires grad",
                "Pass tensor.detach(): the same memory, left to this engine alone.",
            )
        self.value = value
        self.name = name
        self.generation = None
        self.index = -1
        self.hooks = None

    @property
    def shape(self) -> torch.Size:
        """Shape of the value."""
        return self.value.shape

    @property
    def dtype(self) -> torch.dtype:
        """Element type of the value."""
        return self.value.dtype

    @property
    def device(self) -> torch.device:
        """Where the value lies."""
        return self.value.device

    @property
    def ndim(self) -> int:
        """Number of dimensions of the value."""
        return self.value.ndim

    def __repr__(self) -> str:
        name = f", name={self.name!r}" if self.name else ""
        return f"Variable({self.value}{name})"

    def on_final(self, hook: Hook) -> Callable[[], None]:
        """Call `hook(value)` whenever `backward` has completed this leaf's gradient; gives what removes it.

        The hook runs in the middle of backward, while earlier layers are still being differentiated: a
        reducer can start to exchange `value.grad` there.
        """
        if self.generation is not None:
            raise AutogradError(
                f"on_final is for leaves, but this variable of shape {tuple(self.shape)} was computed",
                "Hook the parameters.",
            )
        hooks = self.hooks = {} if self.hooks is None else self.hooks
        key = max(hooks, default=-1) + 1
        hooks[key] = hook

        def remove() -> None:
            hooks.pop(key, None)

        return remove

    # A graph has no values yet while it is compiled, and a branch would freeze one side of the question
    # into it.
    def __bool__(self) -> bool:
        self._refuse_on_placeholder("a Python branch")
        return bool(self.value)

    def __float__(self) -> float:
        self._refuse_on_placeholder("a Python number")
        return float(self.value)

    def item(self) -> float:
        """The value of a variable of one element, as a Python number."""
        return float(self)

    def _refuse_on_placeholder(self, what: str) -> None:
        if self.value.is_meta:
            _refuse(what)

    # The signs of arithmetic. Each is the operation of the same name in shoal.autograd.ops or derived.
    def __add__(self, other: "Operand") -> "Variable":
        return _ops().add(self, other)

    def __radd__(self, other: "Operand") -> "Variable":
        return _ops().add(other, self)

    def __sub__(self, other: "Operand") -> "Variable":
        return _derived().sub(self, other)

    def __rsub__(self, other: "Operand") -> "Variable":
        return _derived().sub(other, self)

    def __mul__(self, other: "Operand") -> "Variable":
        return _ops().mul(self, other)

    def __rmul__(self, other: "Operand") -> "Variable":
        return _ops().mul(other, self)

    def __truediv__(self, other: "Operand") -> "Variable":
        return _derived().div(self, other)

    def __rtruediv__(self, other: "Operand") -> "Variable":
        return _derived().div(other, self)

    def __matmul__(self, other: "Operand") -> "Variable":
        return _derived().matmul(self, other)

    def __neg__(self) -> "Variable":
        return _ops().neg(self)

    def __pow__(self, exponent: "Operand") -> "Variable":
        return _derived().power(self, exponent)

    def sum(self, dims: tuple[int, ...] | int | None = None, keep: bool = False) -> "Variable":
        """Sum over `dims` (all of them when not given)."""
        return _derived().sum(self, dims, keep)

    def mean(self, dims: tuple[int, ...] | int | None = None, keep: bool = False) -> "Variable":
        """Mean over `dims` (all of them when not given)."""
        return _derived().mean(self, dims, keep)

    def reshape(self, *shape: int) -> "Variable":
        """The same elements in another shape."""
        return _ops().reshape(self, shape=shape)

    def detach(self) -> "Variable":
        """The same value, through which no gradient flows."""
        return _ops().detach(self)


Operand = Variable | Tensor | float
"""What an operation takes: a variable, or a constant (a tensor or a number)."""


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _refuse(what: str) -> NoReturn:
    raise AutogradError(
        f"{what} depends on the data of a graph that is being compiled, at {describe(call_site())}",
        "A compiled graph does the same whatever the data: use ops.where, or leave this function dynamic.",
    )


# Operations are written with variables, so their modules come after this one and are looked up when first
# used.
@cache
def _ops() -> ModuleType:
    return import_module("shoal.autograd.ops")


@cache
def _derived() -> ModuleType:
    return import_module("shoal.autograd.derived")
