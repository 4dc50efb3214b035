import torch

from shoal.autograd import Variable, backward, grad
from shoal.autograd.static.graph import trace


def test_forward_and_backward_stand_in_one_graph():
    graph = trace(lambda x, y: grad((x * y).sum(), [x, y]), [torch.ones(3)] * 2)
    sides = [operation.is_backward for operation in graph.operations]
    assert sides == sorted(sides)
    assert not sides[0]
    assert sides[-1]


def test_leaves_constants_and_inputs_are_distinguished():
    leaf = Variable(torch.ones(3), name="w")
    graph = trace(lambda x: x * leaf + torch.ones(3), [torch.ones(3)])
    kinds = {value.kind for operation in graph.operations for value in operation.inputs}
    assert kinds == {"input", "leaf", "constant", "computed"}
    assert graph.operations[0].inputs[1].tensor is leaf.value


def test_backward_becomes_a_delivery():
    leaf = Variable(torch.ones(3))

    def step(x):
        loss = (x * leaf).sum()
        backward(loss, [leaf])
        return loss

    graph = trace(step, [torch.ones(3)])
    assert [parameter for parameter, _ in graph.deliveries] == [leaf]
    assert leaf.value.grad is None
