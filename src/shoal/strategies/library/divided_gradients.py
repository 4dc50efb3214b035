"""`param.grad` between backward passes, where each worker has a part of the summed gradient: a tensor like the whole.

::

    clip_grad_norm_(model.parameters(), 1.0)     norms of the whole gradients; each worker scales its parts
    param.grad.mul_(mask)                        each worker changes its part
    param.grad.norm(), param.grad.abs().max()    of the whole gradient
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from shoal.comm.group import Group
from shoal.errors import ConfigError
from shoal.strategies.pieces.slices import Slices

_ATEN = torch.ops.aten
_SAME = (_ATEN.detach.default, _ATEN.alias.default)
_UNSCALE = _ATEN._amp_foreach_non_finite_check_and_unscale_.default


@final
class DividedGradient(Tensor):
    """A gradient, summed over the workers, of which each worker has a part; it has the whole gradient's shape.

    Operations on single elements run on the parts. Norms are the whole gradient's: the first one exchanges the norms
    of all gradients, once. Everything else gathers the whole first. So all workers make the same calls, in the same
    order: a call that only rank 0 makes ends with a MismatchError.

    Not safe, and refused: views, and torch's collectives that write into it. `full_tensor()` is the whole gradient as a
    plain tensor.
    """

    shown: "ShownGradients"
    param_name: str
    part: Tensor
    is_window: bool
    """Whether it shows the gradient itself: `part` is the memory from which the optimizer updates."""

    @classmethod
    def of(
        cls, shown: "ShownGradients", name: str, shape: torch.Size, part: Tensor, is_window: bool = False
    ) -> "DividedGradient":
        """A gradient of this shape, of which this worker has this part."""
        made = Tensor._make_wrapper_subclass(cls, shape, dtype=part.dtype, device=part.device)
        made.shown, made.param_name, made.part, made.is_window = shown, name, part, is_window
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"DividedGradient('{self.param_name}', shape={tuple(self.shape)}, dtype={self.dtype})"

    def full_tensor(self) -> Tensor:
        """The whole gradient, on every worker. A collective."""
        self.shown.settle(self)
        return self.shown.gathered(self)

    def numpy(self, *, force: bool = False) -> Any:
        """The whole gradient. A collective."""
        return self.full_tensor().numpy(force=force)

    def tolist(self) -> Any:
        """The whole gradient. A collective."""
        return self.full_tensor().tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation of torch's on the parts, or on the whole gradients."""
        kwargs = kwargs or {}
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, cls)]
        first, shown = given[0], given[0].shown
        for each in given:
            each.shown.settle(each)
        if func in _SAME:
            return cls.of(shown, first.param_name, first.shape, first.part, first.is_window)
        if func.is_view:
            raise ConfigError(
                f"a view ({func._schema.name.removeprefix('aten::')}) of the gradient of '{first.param_name}' is not "
                "supported: the workers have a part of it each",
                "Use param.grad.full_tensor(): the whole gradient, on every worker.",
            )
        _refuse_collective(func, args)
        norms = _norms(func, args, kwargs)
        if norms is not None:
            return norms
        is_mutable = func._schema.is_mutable
        if is_mutable:
            for each in given:
                each.shown.forget_norms()
        if is_mutable and isinstance(args[0], list | tuple):  # _foreach_…_: every one is elementwise
            func(*_parts_of_lists(args), **kwargs)
            if func is _UNSCALE:
                shown.group.all_reduce(args[1]).wait()  # found_inf: on any worker
            return None
        like = args[0] if is_mutable else first
        is_elementwise = (
            torch.Tag.pointwise in func.tags and torch.Tag.nondeterministic_seeded not in func.tags
        )
        if isinstance(like, cls) and is_elementwise and _fits((args, kwargs), like):
            args, kwargs = tree_map_only(Tensor, lambda each: _part(each, like), (args, kwargs))
            result = func(*args, **kwargs)
            return like if is_mutable else cls.of(shown, like.param_name, like.shape, result)
        if is_mutable and not isinstance(like, cls):
            shown.refuse_weights(like)
        args, kwargs = tree_map_only(cls, lambda each: each.shown.gathered(each), (args, kwargs))
        result = func(*args, **kwargs)
        if is_mutable and isinstance(like, cls):
            like.part.copy_(_part(args[0], like))
            return like
        return result


def _refuse_collective(func: Any, args: Any) -> None:
    """Refuse `dist.all_reduce(param.grad)` and the like, whose schemas do not say that they write."""
    written = [each for each in tree_leaves(args[:1]) if isinstance(each, DividedGradient)]
    if written and func.namespace == "c10d" and func._schema.name.endswith("_"):
        raise ConfigError(
            f"a collective of torch's ({func._schema.name}) would write into the gradient of "
            f"'{written[0].param_name}', of which each worker has a part",
            "Leave it out: the gradients are summed over the workers already. For a whole one of your own, use "
            "param.grad.full_tensor().",
        )


def _norms(func: Any, args: Any, kwargs: Any) -> Any:
    """The norms that an operation asks for, if they are norms of gradients as a whole; else None."""
    if func not in (_ATEN.linalg_vector_norm.default, _ATEN._foreach_norm.Scalar) or args[2:] or kwargs:
        return None
    order = float(args[1]) if args[1:] else 2.0
    of = args[0] if isinstance(args[0], list | tuple) else [args[0]]
    if order <= 0 or not all(each.is_window for each in of if isinstance(each, DividedGradient)):
        return None
    norms = [
        each.shown.norm(each, order)
        if isinstance(each, DividedGradient)
        else torch.linalg.vector_norm(each, order)
        for each in of
    ]
    return norms if of is args[0] else norms[0]


def _fits(arguments: Any, like: DividedGradient) -> bool:
    """Whether all tensors can be cut to the part of a gradient."""
    tensors = [each for each in tree_leaves(arguments) if isinstance(each, Tensor)]
    alike = all(each.param_name == like.param_name for each in tensors if isinstance(each, DividedGradient))
    return alike and torch.broadcast_shapes(*(each.shape for each in tensors)) == like.shape


def _part(tensor: Tensor, like: DividedGradient) -> Tensor:
    """The elements of a tensor, which is as large as a gradient or is broadcast, that meet this worker's part of it."""
    if isinstance(tensor, DividedGradient):
        return tensor.part
    if not tensor.dim():
        return tensor
    start = like.shown.start_of(like.param_name)
    return tensor.expand(like.shape).reshape(-1)[start : start + like.part.numel()]


def _parts_of_lists(args: Sequence[Any]) -> list[Any]:
    """The arguments of a `_foreach_` operation, each list of tensors cut to the parts of the first list's gradients."""

    def cut(values: Any) -> Any:
        if not isinstance(values, list | tuple):
            return values
        return [
            _part(value, like) if isinstance(value, Tensor) and isinstance(like, DividedGradient) else value
            for value, like in zip(values, args[0], strict=True)
        ]

    return [cut(each) for each in args]


@final
class ShownGradients:
    """Puts a `DividedGradient` in `param.grad` while no backward pass runs.

    `show` is called at the end of every pass, and `hide` before gradients are produced, summed or used. Gradients that
    are not summed over the workers yet are kept meanwhile; `sum_up` sums them when the program looks at one, and calls
    `hide` and `show`.
    """

    def __init__(
        self, group: Group, params: Mapping[str, Tensor], slices: Slices, sum_up: Callable[[], None]
    ) -> None:
        """`slices` have their gradients: the parts of the sums."""
        self.group = group
        self._params, self._slices, self._sum_up = params, slices, sum_up
        parts = {name: owned.grad for name, owned in slices.params.items() if owned.grad is not None}
        self._windows = {
            name: DividedGradient.of(
                self, name, param.shape, parts.get(name, param.detach().new_empty(0)), is_window=True
            )
            for name, param in params.items()
        }
        self._local: dict[str, Tensor | None] = {}
        self._norms: dict[float, dict[str, Tensor]] = {}
        self._is_shown = self._has_sums = False
        self.has_local = False
        """Whether there are gradients that are not summed over the workers."""

    def start_of(self, name: str) -> int:
        """Where this worker's part of a gradient begins."""
        return self._slices.starts.get(name, 0)

    # For the object that trains.

    def show(self, has_sums: bool) -> None:
        """Show the gradients; those in `param.grad` are this worker's own, not yet in the sums."""
        self.hide()
        self._has_sums, self._is_shown = has_sums, True
        self._local = {name: param.grad for name, param in self._params.items()}
        self.has_local = any(grad is not None for grad in self._local.values())
        for name, param in self._params.items():
            param.grad = self._windows[name]

    def hide(self) -> list[str]:
        """Put this worker's own gradients back; returns parameters whose gradients the program has dropped.

        A gradient with which the program has replaced a shown one replaces the sum, too.
        """
        dropped: list[str] = []
        if not self._is_shown:
            return dropped
        self._is_shown = False
        self.forget_norms()
        for name, param in self._params.items():
            grad, window = param.grad, self._windows[name]
            if grad is window:
                param.grad = self._local[name]
                continue
            if grad is None:
                dropped.append(name)
            if self._has_sums:
                if grad is None or self.has_local:
                    window.part.zero_()
                else:
                    window.part.copy_(_part(grad, window))
                    param.grad = None
        return dropped

    def drop(self) -> None:
        """Drop all gradients."""
        self._is_shown = self.has_local = False
        self.forget_norms()
        for param in self._params.values():
            param.grad = None

    # For a gradient.

    def settle(self, gradient: DividedGradient) -> None:
        """Have the sums over the workers, of gradients that are there to be seen."""
        if not gradient.is_window:
            return
        if not self._is_shown:
            raise ConfigError(
                f"the gradient of '{gradient.param_name}' is no longer there: a step, zero_grad() or a backward pass "
                "followed",
                "Read param.grad after backward() and before the step, or keep param.grad.clone().",
            )
        if self.has_local:
            self._sum_up()

    def forget_norms(self) -> None:
        """Gradients have changed."""
        self._norms.clear()

    def norm(self, gradient: DividedGradient, order: float) -> Tensor:
        """The norm of a whole gradient; the norms of all are found together, by one all-gather."""
        if order not in self._norms:
            parts = [window.part for window in self._windows.values()]
            found = [
                torch.linalg.vector_norm(part, order, dtype=_precise(part.dtype))
                if part.numel()
                else part.new_zeros((), dtype=_precise(part.dtype).to_real())
                for part in parts
            ]
            own = torch.stack([norm.to(parts[0].device, torch.float64) for norm in found])
            table = own.new_empty(self.group.size * len(own))
            self.group.all_gather(table, own).wait()
            norms = torch.linalg.vector_norm(table.view(-1, len(own)), order, dim=0)
            self._norms[order] = dict(zip(self._windows, norms, strict=True))
        return self._norms[order][gradient.param_name].to(gradient.device, gradient.dtype.to_real())

    def gathered(self, gradient: DividedGradient) -> Tensor:
        """The whole gradient, on every worker."""
        whole = gradient.part.new_zeros(gradient.shape.numel())
        start = self.start_of(gradient.param_name)
        whole[start : start + gradient.part.numel()] = gradient.part
        # Of each byte one worker has the value: the sum is exact, for every kind of number.
        self.group.all_reduce(whole.view(torch.uint8)).wait()
        return whole.view(gradient.shape)

    def refuse_weights(self, changed: Tensor) -> None:
        """Refuse to change a parameter by hand: each worker would do so, whoever has it."""
        memory = changed.untyped_storage().data_ptr()
        if any(param.untyped_storage().data_ptr() == memory for param in self._params.values()):
            raise ConfigError(
                "a program's own update of a parameter is not supported: the workers divide the parameters",
                "Use the optimizer that make_optimizer returns.",
            )


def _precise(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which norms are found: float32 for half precision."""
    return torch.float32 if dtype.itemsize == 2 and dtype.is_floating_point else dtype
