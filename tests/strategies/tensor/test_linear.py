"""What the layers send, compared with their docstrings; overlap with the gradient of the weight; bf16."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from shoal.comm.threads.group import run_threads
from shoal.comm.traced import traced
from shoal.models.transformer import Attention
from shoal.strategies.tensor.attention import DividedMultiheadAttention
from shoal.strategies.tensor.convolution import ColumnConv2d, RowConv2d
from shoal.strategies.tensor.linear import ColumnLinear, RowLinear
from shoal.strategies.tensor.transformer import ColumnEmbedding, RowEmbedding, divided_attention

SAMPLES, FLOAT = 3, 4


def attention(group):
    return divided_attention(Attention(8, 4), group, "attention")


def torch_attention(group):
    layer = DividedMultiheadAttention(nn.MultiheadAttention(8, 4, batch_first=True), group, "attention")
    return lambda x: layer(x, x, x, need_weights=False)[0]


PICTURES = SAMPLES * 5 * 5
LAYERS = {
    # layer, shape of its input on one of two workers, bytes (all-reduce, all-gather) forward, then both passes together
    "column": (lambda g: ColumnLinear(nn.Linear(6, 8), g, "l"), (SAMPLES, 6), (0, 0), (SAMPLES * 6, 0)),
    "gathered": (
        lambda g: ColumnLinear(nn.Linear(6, 8), g, "l", gathers=True),
        (SAMPLES, 6),
        (0, SAMPLES * 4),
        (SAMPLES * 6, SAMPLES * 4),
    ),
    "row": (lambda g: RowLinear(nn.Linear(6, 8), g, "l"), (SAMPLES, 3), (SAMPLES * 8, 0), (SAMPLES * 8, 0)),
    "column convolution": (
        lambda g: ColumnConv2d(nn.Conv2d(2, 4, 3, padding=1), g, "c"),
        (SAMPLES, 2, 5, 5),
        (0, 0),
        (PICTURES * 2, 0),
    ),
    "row convolution": (
        lambda g: RowConv2d(nn.Conv2d(4, 2, 3, padding=1), g, "c"),
        (SAMPLES, 2, 5, 5),
        (PICTURES * 2, 0),
        (PICTURES * 2, 0),
    ),
    "attention": (attention, (SAMPLES, 7, 8), (SAMPLES * 7 * 8, 0), (2 * SAMPLES * 7 * 8, 0)),
    "words": (
        lambda g: RowEmbedding(nn.Embedding(10, 8), g, "e"),
        None,
        (SAMPLES * 8, 0),
        (SAMPLES * 8, 0),
    ),
    "width": (
        lambda g: ColumnEmbedding(nn.Embedding(10, 8), g, "e", gathers=True),
        None,
        (0, SAMPLES * 4),
        (0, SAMPLES * 4),
    ),
    "width, not gathered": (lambda g: ColumnEmbedding(nn.Embedding(10, 8), g, "e"), None, (0, 0), (0, 0)),
    "torch's attention": (
        torch_attention,
        (SAMPLES, 7, 8),
        (SAMPLES * 7 * 8, 0),
        (2 * SAMPLES * 7 * 8, 0),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_sends_what_its_docstring_says(name):
    make, shape, forward, both = LAYERS[name]

    def work(group):
        group = traced(group)
        x = torch.ones(shape, requires_grad=True) if shape else torch.arange(SAMPLES)
        y = make(group)(x)
        after_forward = sent(group)
        y.sum().backward()
        return after_forward, sent(group)

    def sent(group):
        return tuple(
            group.totals[key].num_bytes // FLOAT if key in group.totals else 0
            for key in ("all_reduce", "all_gather")
        )

    assert run_threads(2, work) == [(forward, both)] * 2


def test_an_input_without_a_gradient_costs_nothing_backward():
    def work(group):
        group = traced(group)
        ColumnLinear(nn.Linear(6, 8), group, "fc")(torch.ones(3, 6)).sum().backward()
        return group.totals

    assert run_threads(2, work) == [{}, {}]


def test_the_weight_gradient_is_computed_while_the_input_gradient_is_on_its_way():
    order = []

    class Slow:
        rank, size = 0, 2

        def all_reduce(self, buffer):
            order.append("sent")
            return self

        def wait(self):
            order.append("waited")

    class Products(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.mm.default:
                order.append("product")
            return func(*args, **(kwargs or {}))

    layer = ColumnLinear(nn.Linear(4, 4), Slow(), "fc")
    y = layer(torch.ones(2, 4, requires_grad=True)).sum()
    with Products():
        y.backward()
    assert order == ["product", "sent", "product", "waited"]


def test_in_bf16_gradients_are_those_of_the_whole_layer_in_bf16():
    whole = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    x = torch.randn(5, 16)

    def of(first, last):
        with torch.autocast("cpu", torch.bfloat16):
            y = last(torch.relu(first(x)))
        y.float().pow(2).sum().backward()
        return y

    expected = of(whole[0], whole[2])

    def work(group):
        first, last = ColumnLinear(whole[0], group, "a"), RowLinear(whole[2], group, "b")
        y = of(first, last)
        return y, first.weight.grad, first.cuts["weight"].part(whole[0].weight.grad, group)

    for y, mine, whole_part in run_threads(2, work):
        assert (y.dtype, mine.dtype) == (torch.bfloat16, torch.float32)
        torch.testing.assert_close(y, expected, rtol=0.05, atol=0.05)
        torch.testing.assert_close(mine, whole_part, rtol=0.1, atol=0.05 * whole_part.abs().max().item())
