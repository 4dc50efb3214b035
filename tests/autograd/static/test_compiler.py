"""A compiled function gives what the dynamic one gives."""

import pytest
import torch
from tests.autograd.networks import batch, lenet
from tests.autograd.test_ops import draw

from shoal.autograd import Tape, Variable, backward, derived, grad, nn, ops, static
from shoal.errors import AutogradError

PAIR = {"stride": (1, 1), "padding": (1, 1)}
CASES = {
    "add": (lambda a, b: a + b, [(2, 3), (3,)]),
    "number first": (lambda a: 2.0 - 3.0 / (1.0 + a * a), [(2, 3)]),
    "mul": (lambda a, b: a * b, [(2, 3), (2, 1)]),
    "div": (lambda a, b: a / (b * b + 1.0), [(2, 3), (2, 3)]),
    "elementwise": (lambda a: ops.exp(a) + ops.tanh(a) * ops.sigmoid(a) + ops.erf(a) - ops.relu(a), [(2, 3)]),
    "roots": (lambda a: ops.log(a * a + 1.0) + ops.sqrt(a * a) + (a * a) ** 1.5, [(2, 3)]),
    "where": (lambda a, b: ops.where(ops.greater(a, b), a * 2.0, b), [(2, 3), (2, 3)]),
    "where with a number": (lambda a: ops.where(ops.greater(a, 0.0), a, 0.5), [(2, 3)]),
    "max": (lambda a: ops.max(a, dims=(1,)), [(2, 3)]),
    "reshape of a permuted value": (
        lambda a: ops.reshape(ops.permute(a * 2.0, dims=(1, 0)), shape=(6,)) * 2.0,
        [(2, 3)],
    ),
    "concatenate": (lambda a, b: ops.concatenate(a * 2.0, b, dim=1) * 3.0, [(2, 3), (2, 1)]),
    "narrow": (lambda a: ops.narrow(a * a, dim=1, start=1, length=2) * 2.0, [(2, 3)]),
    "take_along": (lambda a: ops.take_along(a * a, torch.tensor([[0, 2], [1, 1]]), dim=1), [(2, 3)]),
    "embedding": (lambda a: derived.embedding(a * a, torch.tensor([[0, 1], [1, 1]])), [(2, 3)]),
    "matmul": (lambda a, b: a @ b, [(2, 3), (3, 4)]),
    "batched matmul": (lambda a, b: a @ b, [(5, 2, 3), (3, 4)]),
    "linear": (lambda a, w, b: derived.linear(a, w, b), [(4, 3), (2, 3), (2,)]),
    "layer_norm": (lambda a: derived.layer_norm(a), [(4, 3)]),
    "softmax": (derived.softmax, [(4, 3)]),
    "gelu": (derived.gelu, [(4, 3)]),
    "conv2d": (lambda x, w: ops.conv2d(x, w, **PAIR), [(2, 2, 5, 5), (3, 2, 3, 3)]),
    "pool of conv": (
        lambda x, w, b: derived.max_pool2d(ops.relu(derived.conv2d(x, w, b, padding=1)), 2),
        [(2, 2, 6, 6), (3, 2, 3, 3), (3,)],
    ),
    "same value twice": (lambda a: a * a + a * a, [(2, 3)]),
}


def with_gradients(function):
    """The function, and the gradients of its sum of squares: every rule's operations are compiled as well."""

    def whole(*inputs):
        result = function(*inputs)
        return (result, *grad((result * result).sum(), inputs))

    return whole


@pytest.mark.parametrize("name", CASES)
def test_static_equals_dynamic(name):
    function, sizes = CASES[name]
    inputs = draw(7, *sizes)
    whole = with_gradients(function)
    with Tape():
        want = [result.value for result in whole(*[Variable(value) for value in inputs])]
    plain, best = static.compile(whole, *inputs, optimise=False), static.compile(whole, *inputs)
    for _ in range(2):  # the second run finds the buffers full of the first one's numbers
        for have, exact in zip(plain(*inputs), want, strict=True):
            assert torch.equal(have, exact)
        for have, exact in zip(best(*inputs), want, strict=True):
            torch.testing.assert_close(have, exact, rtol=1e-13, atol=1e-13)


def training_step(layer):
    def step(inputs, labels):
        loss = derived.cross_entropy(layer(inputs), labels)
        backward(loss, nn.parameters(layer))
        return loss

    return step


def test_a_whole_training_gradient_is_bitwise_the_dynamic_one_when_nothing_is_reordered():
    layer = nn.from_torch(lenet(dtype=torch.float32))
    inputs, labels = batch(5, dtype=torch.float32)
    step = training_step(layer)
    with Tape():
        want = step(inputs, labels)
    gradients = [parameter.value.grad for parameter in nn.parameters(layer)]
    for parameter in nn.parameters(layer):
        parameter.value.grad = None
    have = static.compile(step, inputs, labels, optimise=False)(inputs, labels)
    assert torch.equal(have, want.value)
    for parameter, exact in zip(nn.parameters(layer), gradients, strict=True):
        assert torch.equal(parameter.value.grad, exact)


def test_every_pass_leaves_no_more_than_it_found_and_memory_is_reused():
    layer = nn.from_torch(lenet(dtype=torch.float32))
    plan = static.compile(training_step(layer)).plan(*batch(5, dtype=torch.float32))
    counts = [stage.num_operations for stage in plan.stages]
    written = [stage.num_bytes for stage in plan.stages]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] < counts[0]
    assert written[-1] < written[0]
    assert plan.memory.num_bytes < plan.unshared_bytes
    assert "fusion" in plan.table()
    assert "memory, planned" in plan.table()


def test_results_last_beyond_the_next_call():
    double = static.compile(lambda x: x * 2.0, torch.ones(2))
    first = double(torch.ones(2))
    double(torch.zeros(2))
    assert first.tolist() == [2.0, 2.0]


def test_a_new_shape_is_compiled_and_said_once():
    said: list[str] = []
    double = static.compile(lambda x: x * 2.0, torch.ones(2), say=said.append)
    for size in (2, 3, 3, 2):
        assert double(torch.ones(size)).tolist() == [2.0] * size
    assert said == ["compiling again for new shapes (3,) (so far: (2,))"]


def test_a_compiled_function_sees_leaves_change_and_constants_stay():
    leaf, constant = Variable(torch.ones(2)), torch.ones(2)
    function = static.compile(lambda x: x * leaf + constant, torch.ones(2))
    leaf.value.mul_(5.0)
    assert function(torch.ones(2)).tolist() == [6.0, 6.0]


def test_a_gradient_that_is_a_view_of_a_kernels_own_memory_is_delivered():
    flat = Variable(torch.ones(2 * 9))

    def step(x):
        loss = ops.conv2d(x, ops.reshape(flat, shape=(2, 1, 3, 3)), **PAIR).sum()
        backward(loss, [flat])
        return loss

    image = torch.ones(1, 1, 4, 4)
    static.compile(step, image)(image)
    have, flat.value.grad = flat.value.grad, None
    with Tape():
        step(Variable(image))
    assert torch.equal(have, flat.value.grad)


def test_second_derivatives_compile():
    def curvature(x):
        (slope,) = grad((x * x * x).sum(), [x])
        return grad(slope.sum(), [x])[0]

    assert static.compile(curvature, torch.ones(2))(torch.tensor([1.0, 2.0])).tolist() == [6.0, 12.0]


def test_what_the_loss_does_not_depend_on_gets_zeros():
    function = static.compile(lambda x, y: grad((x * x).sum(), [y])[0], torch.ones(2), torch.ones(3))
    assert function(torch.ones(2), torch.ones(3)).tolist() == [0.0, 0.0, 0.0]


class TestBadInput:
    def test_a_branch_on_data_is_refused_with_its_line(self):
        def branching(x):
            if x.sum():
                return x * 2.0
            return x

        with pytest.raises(
            AutogradError,
            match=r"a Python branch depends on the data.*at test_compiler.py:\d+: if x.sum\(\):",
        ):
            static.compile(branching, torch.ones(2))

    def test_a_number_from_data_is_refused_with_its_line(self):
        with pytest.raises(AutogradError, match=r"a Python number depends.*at test_compiler.py:\d+: .*item"):
            static.compile(lambda x: x * x.sum().item(), torch.ones(2))

    def test_a_branch_on_the_tensor_inside_is_refused_with_its_line(self):
        def branching(x):
            if x.value.sum() > 0:
                return x * 2.0
            return x

        with pytest.raises(
            AutogradError, match=r"depends on the data.*at test_compiler.py:\d+: if x.value.sum\(\) > 0:"
        ):
            static.compile(branching, torch.ones(2))

    def test_results_that_are_no_variables(self):
        with pytest.raises(AutogradError, match="result 0 is a float"):
            static.compile(lambda x: 1.0, torch.ones(2))

    def test_arguments_that_are_no_tensors(self):
        with pytest.raises(AutogradError, match="argument 0 is a float"):
            static.compile(lambda x: x * 2.0, torch.ones(2))(1.0)

    def test_shapes_that_do_not_fit_are_named_at_compile_time(self):
        with pytest.raises(AutogradError, match=r"add cannot take shapes \(2,\) and \(3,\)"):
            static.compile(lambda x, y: x + y, torch.ones(2), torch.ones(3))


@pytest.mark.parametrize(
    ("given", "fix"),
    [(Variable(torch.ones(2)), "variable.value"), (2.0, "torch.tensor"), (Variable, "torch.tensor")],
)
def test_an_example_that_is_not_a_tensor_is_refused(given, fix):
    kind = type(given).__name__
    for call in (
        lambda: static.compile(lambda x: x * 2.0, given),
        lambda: static.compile(lambda x: x * 2.0)(given),
    ):
        with pytest.raises(AutogradError, match=f"takes tensors, but argument 0 is a {kind}") as refused:
            call()
        assert fix in str(refused.value)
