"""Every primitive against torch.autograd: values, first and second derivatives, over drawn shapes and broadcasts."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.autograd.truth import assert_same_derivatives

from shoal.autograd import ops

quick = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**31 - 1)
shapes = st.lists(st.integers(1, 4), max_size=4).map(tuple)


def draw(seed: int, *sizes: tuple[int, ...], low: float = -2.0, high: float = 2.0) -> list[torch.Tensor]:
    """Numbers at least 0.05 away from 0, where relu and friends have a kink."""
    generator = torch.Generator().manual_seed(seed)
    values = [torch.rand(s, generator=generator, dtype=torch.float64) * (high - low) + low for s in sizes]
    return [torch.where(v.abs() < 0.05, 0.5, v) for v in values]


@st.composite
def broadcasts(draw_from, count: int = 2):
    """Shapes that broadcast together: axes of one shape set to 1, or dropped from the front."""
    full = draw_from(shapes)
    found = []
    for _ in range(count):
        kept = tuple(n if draw_from(st.booleans()) else 1 for n in full)
        found.append(kept[draw_from(st.integers(0, len(kept))) :] if kept else kept)
    return found


@quick
@given(broadcasts(), seeds)
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(ops.add, torch.add), (ops.mul, torch.mul)],
    ids=["add", "mul"],
)
def test_two_operands_broadcast(ours, theirs, sizes, seed):
    assert_same_derivatives(ours, theirs, draw(seed, *sizes), seed)


@quick
@given(broadcasts(3), seeds)
def test_where_broadcasts(sizes, seed):
    mask, a, b = draw(seed, *sizes)
    assert_same_derivatives(
        lambda a, b: ops.where(mask > 0, a, b), lambda a, b: torch.where(mask > 0, a, b), [a, b], seed
    )


ELEMENTWISE = {
    "neg": (ops.neg, torch.neg, -2.0),
    "reciprocal": (ops.reciprocal, torch.reciprocal, -2.0),
    "exp": (ops.exp, torch.exp, -2.0),
    "log": (ops.log, torch.log, 0.1),
    "sqrt": (ops.sqrt, torch.sqrt, 0.1),
    "tanh": (ops.tanh, torch.tanh, -2.0),
    "sigmoid": (ops.sigmoid, torch.sigmoid, -2.0),
    "erf": (ops.erf, torch.erf, -2.0),
    "relu": (ops.relu, torch.relu, -2.0),
    "square": (lambda a: ops.pow(a, exponent=2), lambda a: a**2, -2.0),
    "cube": (lambda a: ops.pow(a, exponent=3), lambda a: a**3, -2.0),
    "root": (lambda a: ops.pow(a, exponent=1.5), lambda a: a**1.5, 0.1),
    "one": (lambda a: ops.pow(a, exponent=0), lambda a: a**0, -2.0),
}


@quick
@given(shapes, seeds)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_element_by_element(name, shape, seed):
    ours, theirs, low = ELEMENTWISE[name]
    assert_same_derivatives(ours, theirs, draw(seed, shape, low=low), seed)


@quick
@given(st.data(), seeds)
def test_sum_over_any_axes(data, seed):
    shape = data.draw(shapes.filter(bool))
    dims = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    keep = data.draw(st.booleans())
    assert_same_derivatives(
        lambda a: ops.sum(a, dims=dims, keep=keep),
        lambda a: a.sum(dims, keepdim=keep),
        draw(seed, shape),
        seed,
    )


@quick
@given(st.data(), seeds)
def test_max_over_any_axes(data, seed):
    shape = data.draw(shapes.filter(bool))
    dims = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    assert_same_derivatives(
        lambda a: ops.max(a, dims=dims), lambda a: a.amax(dims, keepdim=True), draw(seed, shape), seed
    )


def test_max_shares_the_gradient_among_ties():
    value = torch.tensor([[3.0, 1.0, 3.0]], dtype=torch.float64)
    assert_same_derivatives(lambda a: ops.max(a, dims=(1,)), lambda a: a.amax(1, keepdim=True), [value])


@quick
@given(broadcasts(), seeds)
def test_expand(sizes, seed):
    target = torch.broadcast_shapes(*sizes)
    assert_same_derivatives(
        lambda a: ops.expand(a, shape=tuple(target)), lambda a: a.expand(target), draw(seed, sizes[0]), seed
    )


@quick
@given(st.data(), seeds)
def test_reshape_and_permute(data, seed):
    shape = data.draw(shapes.filter(bool))
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    assert_same_derivatives(
        lambda a: ops.reshape(ops.permute(a, dims=order), shape=(-1,)),
        lambda a: a.permute(order).reshape(-1),
        draw(seed, shape),
        seed,
    )


@quick
@given(st.data(), seeds)
def test_concatenate_and_narrow(data, seed):
    shape = data.draw(shapes.filter(bool))
    dim = data.draw(st.integers(0, len(shape) - 1))
    count = data.draw(st.integers(1, 3))
    sizes = [(*shape[:dim], data.draw(st.integers(1, 3)), *shape[dim + 1 :]) for _ in range(count)]
    total = sum(size[dim] for size in sizes)
    start = data.draw(st.integers(0, total - 1))
    length = data.draw(st.integers(1, total - start))
    assert_same_derivatives(
        lambda *parts: ops.narrow(ops.concatenate(*parts, dim=dim), dim=dim, start=start, length=length),
        lambda *parts: torch.cat(parts, dim).narrow(dim, start, length),
        draw(seed, *sizes),
        seed,
    )


@quick
@given(st.data(), seeds)
def test_index_select_and_scatter(data, seed):
    shape = data.draw(shapes.filter(bool))
    dim = data.draw(st.integers(0, len(shape) - 1))
    index = torch.tensor(data.draw(st.lists(st.integers(0, shape[dim] - 1), min_size=1, max_size=6)))
    assert_same_derivatives(
        lambda a: ops.index_scatter(ops.index_select(a, index, dim=dim), index, dim=dim, size=shape[dim]),
        lambda a: torch.zeros(shape, dtype=a.dtype).index_add(dim, index, a.index_select(dim, index)),
        draw(seed, shape),
        seed,
    )


@quick
@given(st.data(), seeds)
def test_take_along(data, seed):
    shape = data.draw(shapes.filter(bool))
    dim = data.draw(st.integers(0, len(shape) - 1))
    size = (*shape[:dim], data.draw(st.integers(1, 4)), *shape[dim + 1 :])
    index = torch.randint(0, shape[dim], size, generator=torch.Generator().manual_seed(seed))
    assert_same_derivatives(
        lambda a: ops.take_along(a, index, dim=dim), lambda a: a.gather(dim, index), draw(seed, shape), seed
    )


@quick
@given(st.data(), seeds)
def test_matmul_with_batches_and_transposes(data, seed):
    rows, inner, columns = data.draw(st.tuples(*[st.integers(1, 4)] * 3))
    batch_a, batch_b = data.draw(broadcasts())
    ta, tb = data.draw(st.booleans()), data.draw(st.booleans())
    a = (*batch_a, *((inner, rows) if ta else (rows, inner)))
    b = (*batch_b, *((columns, inner) if tb else (inner, columns)))
    assert_same_derivatives(
        lambda a, b: ops.matmul(a, b, transpose_a=ta, transpose_b=tb),
        lambda a, b: (a.mT if ta else a) @ (b.mT if tb else b),
        draw(seed, a, b),
        seed,
    )


@quick
@given(st.data(), seeds)
def test_conv2d(data, seed):
    samples, channels, out = data.draw(st.tuples(*[st.integers(1, 3)] * 3))
    kernel = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    stride = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    padding = data.draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    size = (data.draw(st.integers(kernel[0], 7)), data.draw(st.integers(kernel[1], 7)))
    assert_same_derivatives(
        lambda x, w: ops.conv2d(x, w, stride=stride, padding=padding),
        lambda x, w: F.conv2d(x, w, None, stride, padding),
        draw(seed, (samples, channels, *size), (out, channels, *kernel)),
        seed,
    )


@quick
@given(st.data(), seeds)
def test_max_pool2d(data, seed):
    kernel = data.draw(st.integers(1, 3))
    stride = data.draw(st.integers(1, 3))
    padding = data.draw(st.integers(0, kernel // 2))
    size = (2, 2, data.draw(st.integers(3, 7)), data.draw(st.integers(3, 7)))
    assert_same_derivatives(
        lambda x: ops.max_pool2d(x, kernel=(kernel,) * 2, stride=(stride,) * 2, padding=(padding,) * 2)[0],
        lambda x: F.max_pool2d(x, kernel, stride, padding),
        draw(seed, size),
        seed,
    )


def test_detach_stops_the_gradient():
    values = draw(0, (3,))
    assert_same_derivatives(lambda a: ops.detach(a) * a, lambda a: a.detach() * a, values)


def test_masks_are_values_without_gradient():
    a = torch.tensor([1.0, 2.0])
    assert ops.greater(a, torch.tensor([0.0, 3.0])).tolist() == [True, False]
    assert ops.equal(a, torch.tensor([1.0, 3.0])).tolist() == [True, False]


def test_operations_on_plain_tensors_simply_compute():
    result = ops.mul(torch.ones(2), 3.0)
    assert isinstance(result, torch.Tensor)
    assert result.tolist() == [3.0, 3.0]
