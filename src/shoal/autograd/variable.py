"""A tensor that the tape can follow."""

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from shoal.autograd.refusals import call_site, depends_on_data, describe
from shoal.errors import AutogradError

Hook = Callable[[Tensor], object]
"""Called with a leaf's tensor when its gradient is complete."""
Dims = tuple[int, ...] | int | None
"""The dimensions of a reduction; None means all of them."""


@final
class Generation(weakref.ref[Any]):
    """A tape between two resets: what a computed variable remembers of the tape that recorded it.

    It is a weak reference, so a variable does not keep its tape alive. There is then no cycle tape → entries →
    variables → tape, and the memory of a step is freed as soon as its tape is dropped, without the garbage
    collector.
    """

    __slots__ = ()


@final
class Variable:
    """A tensor and its place in the computation.

    A variable that you create is a *leaf*: data or a parameter, usable on every tape. A variable that an
    operation creates is *recorded*: it belongs to the current tape and cannot be used after that tape is reset.

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
                f"a variable holds floating-point numbers, but {which} holds {str(value.dtype).removeprefix('torch.')}",
                "Pass integers (labels, indices) as plain tensors, or convert: x.to(torch.float32).",
            )
        if value.requires_grad:
            raise AutogradError(
                f"a variable's tensor must be detached, but {which} requires grad",
                "Pass tensor.detach(): the same memory, without torch's autograd.",
            )
        self.value = value
        self.name = name
        self.generation = None
        self.index = -1
        self.hooks = None

    @staticmethod
    def unchecked(
        value: Tensor, name: str | None = None, generation: Generation | None = None, index: int = -1
    ) -> "Variable":
        """A variable around a tensor that this engine made; skips the constructor's checks."""
        variable = Variable.__new__(Variable)
        variable.value = value
        variable.name = name
        variable.generation = generation
        variable.index = index
        variable.hooks = None
        return variable

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
        """Device of the value."""
        return self.value.device

    @property
    def ndim(self) -> int:
        """Number of dimensions of the value."""
        return self.value.ndim

    def __repr__(self) -> str:
        name = f", name={self.name!r}" if self.name else ""
        return f"Variable({self.value}{name})"

    def on_final(self, hook: Hook) -> Callable[[], None]:
        """Call `hook(value)` whenever `backward` has completed this leaf's gradient; returns a function to remove it.

        The hook runs during backward, while earlier layers are still being differentiated: a reducer can start to
        exchange `value.grad` there.
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

    # A graph has no values yet while it is compiled, and would contain only one side of a branch.
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
            raise depends_on_data(what, describe(call_site()))

    if TYPE_CHECKING:
        # derived.py attaches these: operations are written with variables, so they come after this file.
        def __add__(self, other: "Operand", /) -> "Variable": ...
        def __radd__(self, other: "Operand", /) -> "Variable": ...
        def __sub__(self, other: "Operand", /) -> "Variable": ...
        def __rsub__(self, other: "Operand", /) -> "Variable": ...
        def __mul__(self, other: "Operand", /) -> "Variable": ...
        def __rmul__(self, other: "Operand", /) -> "Variable": ...
        def __truediv__(self, other: "Operand", /) -> "Variable": ...
        def __rtruediv__(self, other: "Operand", /) -> "Variable": ...
        def __matmul__(self, other: "Operand", /) -> "Variable": ...
        def __pow__(self, exponent: "Operand", /) -> "Variable": ...
        def __neg__(self) -> "Variable": ...
        def sum(self, /, dims: Dims = None, keep: bool = False) -> "Variable":
            """Sum over `dims` (None: all)."""
            ...

        def mean(self, /, dims: Dims = None, keep: bool = False) -> "Variable":
            """Mean over `dims` (None: all)."""
            ...

        def reshape(self, /, *shape: int) -> "Variable":
            """The same elements in another shape."""
            ...

        def expand(self, /, *shape: int) -> "Variable":
            """Repeated along axes of length 1 and new leading axes."""
            ...

        def detach(self, /) -> "Variable":
            """The same value as a constant: no gradient flows."""
            ...


Operand = Variable | Tensor | float
"""What an operation takes: a variable, or a constant (a tensor or a number)."""
