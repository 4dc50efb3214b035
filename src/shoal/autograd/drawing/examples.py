"""Small computations worth drawing, each with the gradient it is there for."""

import math
from collections.abc import Callable

import torch

import shoal.autograd.derived as derived
import shoal.autograd.ops as ops
from shoal.autograd.gradient import backward, grad
from shoal.autograd.nn import Conv2d, Function, Layer, Linear, Sequential, flatten, parameters
from shoal.autograd.static.graph import Graph, trace
from shoal.autograd.variable import Variable
from shoal.errors import AutogradError, unknown


def course() -> Graph:
    """The worked example: t = a + b, c = t · b, L = Σ c, and ∂L/∂a, ∂L/∂b."""
    a, b = Variable(torch.zeros(4), name="a"), Variable(torch.zeros(4), name="b")

    def simple() -> list[Variable]:
        loss = ((a + b) * b).sum()
        loss.name = "L"
        da, db = grad(loss, [a, b])
        da.name, db.name = "∂L/∂a", "∂L/∂b"
        return [loss, da, db]

    return trace(simple, [])


def mlp() -> Graph:
    """Two linear layers with ReLU between, cross-entropy, and the gradients of all weights."""
    network = Sequential(
        (("fc1", _linear("fc1", 4, 3)), ("relu", Function(ops.relu)), ("fc2", _linear("fc2", 3, 2)))
    )
    return _training(network, torch.zeros(8, 4))


def lenet() -> Graph:
    """Convolution, pooling and a linear layer, cross-entropy, and the gradients of all weights."""
    conv = Conv2d(_leaf("conv1.weight", 6, 1, 5, 5), _leaf("conv1.bias", 6), padding=(2, 2))
    network = Sequential(
        (
            ("conv1", conv),
            ("relu1", Function(ops.relu)),
            ("pool1", Function(lambda x: derived.max_pool2d(x, 2))),
            ("flatten", Function(flatten)),
            ("fc1", _linear("fc1", 6 * 14 * 14, 10)),
        )
    )
    return _training(network, torch.zeros(8, 1, 28, 28))


def attention() -> Graph:
    """softmax(Q Kᵀ / √d) V, and the gradients of Q, K and V."""

    def attend(q: Variable, k: Variable, v: Variable) -> list[Variable]:
        weights = derived.softmax(derived.div(q @ derived.transpose(k), math.sqrt(q.shape[-1])))
        out = weights @ v
        return [out, *grad(out.sum(), [q, k, v])]

    return trace(attend, [torch.zeros(6, 4)] * 3)


def chain() -> Graph:
    """A B C v as it is written, from the left: the order a compiler turns round."""
    return trace(lambda a, b, c, v: ((a @ b) @ c) @ v, [*[torch.zeros(64, 64)] * 3, torch.zeros(64, 1)])


EXAMPLES: dict[str, Callable[[], Graph]] = {
    "course": course,
    "mlp": mlp,
    "lenet": lenet,
    "attention": attention,
    "chain": chain,
}


def example(name: str) -> Graph:
    """The example of that name.

    >>> len(example("chain").operations)
    3
    """
    if name not in EXAMPLES:
        raise AutogradError(unknown("example", name, EXAMPLES))
    return EXAMPLES[name]()


def _training(network: Layer, inputs: torch.Tensor) -> Graph:
    def step(inputs: Variable, labels: Variable) -> Variable:
        loss = derived.cross_entropy(network(inputs), labels)
        backward(loss, parameters(network))
        return loss

    return trace(step, [inputs, torch.zeros(inputs.shape[0], dtype=torch.int64)])


def _linear(name: str, inputs: int, outputs: int) -> Linear:
    return Linear(_leaf(f"{name}.weight", outputs, inputs), _leaf(f"{name}.bias", outputs))


def _leaf(name: str, *shape: int) -> Variable:
    return Variable(torch.zeros(shape), name=name)
