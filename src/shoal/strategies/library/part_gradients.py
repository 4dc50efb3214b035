"""Gradients of parameters that other workers do not have, or of which they have other parts: a norm is of all of them.

`torch.nn.utils.clip_grad_norm_` computes the norm of each gradient, stacks them, and takes the norm of that::

    rank 0   ‖g₀‖, ‖g₁‖   ─ stack ─┐
                                   ├─ norm over both workers: √(‖g₀‖² + ‖g₁‖² + ‖g₂‖²), the same on both
    rank 1   ‖g₂‖         ─ stack ─┘
"""

from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from shoal.comm.group import Group
from shoal.errors import ConfigError

_ATEN = torch.ops.aten
_NORMS = (_ATEN.linalg_vector_norm.default, _ATEN._foreach_norm.Scalar)
_UNSCALE = _ATEN._amp_foreach_non_finite_check_and_unscale_.default


@final
class PartGradient(Tensor):
    """A gradient, or norms of gradients, of one worker among several that have others. It is a tensor like any other.

    Only the norm of stacked norms is a collective, and `GradScaler`'s search for numbers that are not finite: all
    workers make these calls. Norms of gradients that all workers have, stacked with others, count once.
    """

    plain: Tensor
    group: Group
    num_together: int
    """How many such gradients this worker has, if a norm must be of all of them; else 0."""
    is_part: Tensor | None
    """Of stacked norms: which of them are of parts."""

    @classmethod
    def of(
        cls, plain: Tensor, group: Group, num_together: int = 0, is_part: Tensor | None = None
    ) -> "PartGradient":
        """The tensor as a part of what the group has."""
        made = Tensor._make_subclass(cls, plain)
        made.plain, made.group, made.num_together, made.is_part = plain, group, num_together, is_part
        return made

    def numpy(self, *, force: bool = False) -> Any:
        """This worker's numbers."""
        return self.plain.numpy(force=force)

    def tolist(self) -> Any:
        """This worker's numbers."""
        return self.plain.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation of torch's on this worker's numbers."""
        kwargs = kwargs or {}
        first = next(each for each in tree_leaves((args, kwargs)) if isinstance(each, cls))
        group, num_together = first.group, first.num_together
        if func is _NORMS[0] and args[0] is first and first.is_part is not None and not args[2:]:
            return _total(first, float(args[1]) if args[1:] else 2.0)
        plain_args, plain_kwargs = tree_map_only(cls, lambda each: each.plain, (args, kwargs))
        result = func(*plain_args, **plain_kwargs)
        if func._schema.is_mutable:
            if func is _UNSCALE:
                group.all_reduce(args[1]).wait()  # found_inf: on any worker
            return args[0] if isinstance(args[0], cls) else result
        if func is _ATEN.detach.default or (func is _NORMS[0] and not args[2:]):
            return cls.of(result, group, num_together)
        if func is _NORMS[1]:
            return [
                cls.of(norm, group, num_together) if isinstance(given, cls) else norm
                for norm, given in zip(result, args[0], strict=True)
            ]
        if func is _ATEN.stack.default and all(each.dim() == 0 for each in args[0]):
            is_part = torch.tensor([isinstance(each, cls) for each in args[0]])
            return cls.of(result, group, num_together, is_part)
        return result


def _total(norms: PartGradient, order: float) -> Tensor:
    """The norm of all workers' norms; of those that all workers have, once."""
    assert norms.is_part is not None
    is_part, num_together = norms.is_part.to(norms.device), norms.num_together
    if is_part.sum() < num_together:
        raise ConfigError(
            f"a norm of {is_part.sum()} of the {num_together} gradients of this stage is not supported: other stages "
            "may have none of these parameters, and would not take part",
            "Clip the gradients of all parameters: clip_grad_norm_(pipe.parameters(), …).",
        )
    shared = norms.plain[~is_part]
    own = torch.linalg.vector_norm(norms.plain[is_part], order).double().view(1)
    of_all = own.new_empty(norms.group.size)
    norms.group.all_gather(of_all, own).wait()
    return torch.linalg.vector_norm(torch.cat((shared, of_all.to(shared.dtype))), order)


def mark(param: nn.Parameter, group: Group, num_together: int = 0) -> None:
    """Have a parameter's gradient, if there is one, count as a part."""
    if param.grad is not None and not isinstance(param.grad, PartGradient):
        param.grad = PartGradient.of(param.grad, group, num_together)
