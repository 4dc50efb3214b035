"""Small computations to draw, each with its gradients."""

import math
from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import nn

import shoal.autograd.derived as derived
from shoal.autograd.gradient import backward, grad
from shoal.autograd.nn import from_torch, parameters
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
    with torch.device("meta"):
        layers = OrderedDict[str, nn.Module](fc1=nn.Linear(4, 3), relu=nn.ReLU(), fc2=nn.Linear(3, 2))
    return _training(layers, torch.zeros(8, 4))


def lenet() -> Graph:
    """Convolution, pooling and a linear layer, cross-entropy, and the gradients of all weights."""
    with torch.device("meta"):
        layers = OrderedDict[str, nn.Module](
            conv1=nn.Conv2d(1, 6, 5, padding=2),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(6 * 14 * 14, 10),
        )
    return _training(layers, torch.zeros(8, 1, 28, 28))


def attention() -> Graph:
    """softmax(Q Kᵀ / √d) V, and the gradients of Q, K and V."""

    def attend(q: Variable, k: Variable, v: Variable) -> list[Variable]:
        weights = derived.softmax(derived.div(q @ derived.transpose(k), math.sqrt(q.shape[-1])))
        out = weights @ v
        return [out, *grad(out.sum(), [q, k, v])]

    return trace(attend, [torch.zeros(6, 4)] * 3)


def chain() -> Graph:
    """A B C v, evaluated from the left as written: the compiler reverses this order."""
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


def _training(layers: "OrderedDict[str, nn.Module]", inputs: torch.Tensor) -> Graph:
    network = from_torch(nn.Sequential(layers))

    def step(inputs: Variable, labels: Variable) -> Variable:
        loss = derived.cross_entropy(network(inputs), labels)
        backward(loss, parameters(network))
        return loss

    return trace(step, [inputs, torch.zeros(inputs.shape[0], dtype=torch.int64)])
