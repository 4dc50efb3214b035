"""Operations that move, repeat, gather or sum elements. They come in pairs, each the other's backward."""

from typing import Any

import torch
from torch import Tensor

from shoal.autograd.tape import primitive


@primitive()
def sum(a: Tensor, *, dims: tuple[int, ...], keep: bool) -> Tensor:  # noqa: A001 (the operation's name)
    """c = Σ a over dims (an axis of length 1 stays when `keep`):  ∂a = ∂c, repeated."""
    return torch.sum(a, dims, keepdim=keep) if dims else a.clone()


def _sum_backward(g: Any, c: Any, a: Any, dims: tuple[int, ...], keep: bool) -> Any:
    if not keep and len(dims) < a.ndim:
        axes = {dim % a.ndim for dim in dims}
        g = reshape(g, shape=tuple(1 if axis in axes else n for axis, n in enumerate(a.shape)))
    return expand(g, shape=tuple(a.shape))


sum.backward = (_sum_backward,)


@primitive()
def expand(a: Tensor, *, shape: tuple[int, ...]) -> Tensor:
    """c = a, repeated along axes of length 1 and new leading axes:  ∂a = Σ ∂c over the repetitions."""
    return a.expand(shape)


expand.backward = (lambda g, c, a, shape: fit(g, a),)


def fit(g: Any, a: Any) -> Any:
    """The gradient of an operand that was broadcast: g summed over the repetitions, in a's shape."""
    shape = a.shape
    if g.shape == shape:
        return g
    new = g.ndim - len(shape)
    repeated = [new + axis for axis, n in enumerate(shape) if n == 1 and g.shape[new + axis] != 1]
    dims = (*range(new), *repeated)
    if not dims:
        return reshape(g, shape=tuple(shape))
    g = sum(g, dims=dims, keep=bool(repeated))
    return g if g.shape == shape else reshape(g, shape=tuple(shape))


@primitive()
def reshape(a: Tensor, *, shape: tuple[int, ...]) -> Tensor:
    """c = a's elements in another shape:  ∂a = ∂c in a's shape."""
    return a.reshape(shape)


reshape.backward = (lambda g, c, a, shape: reshape(g, shape=tuple(a.shape)),)


@primitive()
def permute(a: Tensor, *, dims: tuple[int, ...]) -> Tensor:
    """c = a with its axes in another order:  ∂a = ∂c with its axes put back."""
    return a.permute(dims)


def _permute_backward(g: Any, c: Any, a: Any, dims: tuple[int, ...]) -> Any:
    back = [0] * len(dims)
    for new, old in enumerate(dims):
        back[old] = new
    return permute(g, dims=tuple(back))


permute.backward = (_permute_backward,)


@primitive(variadic=True)
def concatenate(*parts: Tensor, dim: int) -> Tensor:
    """c = the parts one after another along dim:  ∂(each part) = its slice of ∂c."""
    return torch.cat(parts, dim)


def _concatenate_backward(g: Any, c: Any, *parts: Any, dim: int, position: int) -> Any:
    start = 0
    for part in parts[:position]:
        start += part.shape[dim]
    return narrow(g, dim=dim, start=start, length=parts[position].shape[dim])


concatenate.backward = (_concatenate_backward,)


def _zeros(a: Tensor, dim: int, size: int) -> Tensor:
    """Zeros in a's shape, but of length `size` along dim."""
    shape = list(a.shape)
    shape[dim] = size
    return a.new_zeros(shape)


@primitive()
def narrow(a: Tensor, *, dim: int, start: int, length: int) -> Tensor:
    """c = a slice of a along dim:  ∂a = ∂c with zeros around it."""
    return a.narrow(dim, start, length)


@primitive()
def surround(a: Tensor, *, dim: int, start: int, size: int) -> Tensor:
    """c = zeros of length `size` along dim, with a copied to `start`:  ∂a = that slice of ∂c."""
    c = _zeros(a, dim, size)
    c.narrow(dim, start, a.shape[dim]).copy_(a)
    return c


narrow.backward = (lambda g, c, a, dim, start, length: surround(g, dim=dim, start=start, size=a.shape[dim]),)
surround.backward = (lambda g, c, a, dim, start, size: narrow(g, dim=dim, start=start, length=a.shape[dim]),)


@primitive()
def index_select(a: Tensor, index: Tensor, *, dim: int) -> Tensor:
    """c = the slices of a along dim at the indices:  ∂a = ∂c, added at the indices."""
    return torch.index_select(a, dim, index)


@primitive()
def index_scatter(a: Tensor, index: Tensor, *, dim: int, size: int) -> Tensor:
    """c = zeros of length `size` along dim, plus a's slices at the indices:  ∂a = those slices of ∂c."""
    return _zeros(a, dim, size).index_add_(dim, index, a)


index_select.backward = (
    lambda g, c, a, index, dim: index_scatter(g, index, dim=dim, size=a.shape[dim]),
    None,
)
index_scatter.backward = (lambda g, c, a, index, dim, size: index_select(g, index, dim=dim), None)


@primitive()
def one_hot(index: Tensor, *, size: int, dtype: torch.dtype) -> Tensor:
    """c[…, k] = 1 where k is the index, else 0; no gradient flows."""
    return (index.unsqueeze(-1) == torch.arange(size, device=index.device)).to(dtype)


@primitive()
def take_along(a: Tensor, index: Tensor, *, dim: int) -> Tensor:
    """c[i] = a[i with the coordinate dim replaced by index[i]]:  ∂a = ∂c, added at the index."""
    return torch.gather(a, dim, index)


@primitive()
def put_along(a: Tensor, index: Tensor, *, dim: int, size: int) -> Tensor:
    """c = zeros of length `size` along dim, with a added at the index:  ∂a = ∂c at the index."""
    return _zeros(a, dim, size).scatter_add_(dim, index, a)


take_along.backward = (
    lambda g, c, a, index, dim: put_along(g, index, dim=dim, size=a.shape[dim]),
    None,
)
put_along.backward = (lambda g, c, a, index, dim, size: take_along(g, index, dim=dim), None)
