"""Every derived operation against torch.autograd: values, first and second derivatives."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.autograd.test_ops import broadcasts, draw, seeds, shapes
from tests.autograd.truth import assert_same_derivatives

from shoal.autograd import Variable, derived, grad

quick = settings(max_examples=20, deadline=None)

TWO = {
    "sub": (derived.sub, torch.sub),
    "div": (derived.div, torch.div),
    "power": (lambda a, b: derived.power(a * a + 1.0, b), lambda a, b: (a * a + 1.0) ** b),
    "mse-free": (lambda a, b: derived.sub(a, b) * 0.5, lambda a, b: (a - b) * 0.5),
}


@quick
@given(broadcasts(), seeds)
@pytest.mark.parametrize("name", TWO)
def test_two_operands_broadcast(name, sizes, seed):
    assert_same_derivatives(*TWO[name], draw(seed, *sizes), seed)


LAST_AXIS = {
    "mean": (lambda a: derived.mean(a, -1), lambda a: a.mean(-1)),
    "mean of all": (derived.mean, torch.mean),
    "sum": (lambda a: derived.sum(a, -1, keep=True), lambda a: a.sum(-1, keepdim=True)),
    "var": (lambda a: derived.var(a, -1), lambda a: a.var(-1, correction=0)),
    "var of all": (derived.var, lambda a: a.var(correction=0)),
    "softmax": (derived.softmax, lambda a: a.softmax(-1)),
    "log_softmax": (derived.log_softmax, lambda a: a.log_softmax(-1)),
    "gelu": (derived.gelu, F.gelu),
}


@quick
@given(shapes.filter(bool), seeds)
@pytest.mark.parametrize("name", LAST_AXIS)
def test_one_operand(name, shape, seed):
    assert_same_derivatives(*LAST_AXIS[name], draw(seed, shape), seed)


@quick
@given(st.integers(1, 5), st.integers(1, 5), seeds, st.sampled_from(["mean", "sum"]))
def test_losses(rows, classes, seed, reduction):
    labels = torch.randint(0, classes, (rows,), generator=torch.Generator().manual_seed(seed))
    logits, target = draw(seed, (rows, classes), (rows, classes))
    assert_same_derivatives(
        lambda a: derived.cross_entropy(a, labels, reduction),
        lambda a: F.cross_entropy(a, labels, reduction=reduction),
        [logits],
        seed,
    )
    assert_same_derivatives(
        lambda a, b: derived.mse(a, b, reduction),
        lambda a, b: F.mse_loss(a, b, reduction=reduction),
        [logits, target],
        seed,
    )


@quick
@given(shapes, st.integers(2, 5), seeds)
def test_layer_norm(leading, width, seed):
    inputs = draw(seed, (*leading, width), (width,), (width,))
    assert_same_derivatives(derived.layer_norm, lambda a, w, b: F.layer_norm(a, (width,), w, b), inputs, seed)


@quick
@given(shapes, st.integers(1, 4), st.integers(1, 4), seeds)
def test_linear(leading, wide, narrow, seed):
    inputs = draw(seed, (*leading, wide), (narrow, wide), (narrow,))
    assert_same_derivatives(derived.linear, F.linear, inputs, seed)


@quick
@given(
    st.sampled_from([((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((4, 2, 3), (3,)), ((3,), (4, 3, 2))]),
    seeds,
)
def test_matmul_of_vectors(sizes, seed):
    assert_same_derivatives(derived.matmul, torch.matmul, draw(seed, *sizes), seed)


def test_convolution_with_bias_pooling_and_embedding():
    x, w, b, table = draw(3, (2, 2, 6, 6), (3, 2, 3, 3), (3,), (5, 4))
    assert_same_derivatives(
        lambda x, w, b: derived.max_pool2d(derived.conv2d(x, w, b, stride=1, padding=1), 2),
        lambda x, w, b: F.max_pool2d(F.conv2d(x, w, b, padding=1), 2),
        [x, w, b],
    )
    index = torch.tensor([[0, 4], [4, 1]])
    assert_same_derivatives(lambda t: derived.embedding(t, index), lambda t: F.embedding(index, t), [table])
    assert_same_derivatives(derived.transpose, lambda a: a.mT, [table])


def test_log_softmax_survives_large_logits():
    value = derived.log_softmax(torch.tensor([[1000.0, 0.0]]))
    assert value.tolist() == [[0.0, -1000.0]]


def test_expand_repeats_and_its_gradient_is_the_sum():
    a = Variable(torch.tensor([[2.0], [3.0]]))
    weights = torch.arange(12.0).reshape(2, 2, 3)
    (da,) = grad((a.expand(2, 2, 3) * weights).sum(), [a])
    assert da.value.tolist() == [[float(weights[:, 0].sum())], [float(weights[:, 1].sum())]]
