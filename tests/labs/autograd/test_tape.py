"""The tape of course notes: its names, and errors where such programs are silently wrong."""

import pytest
import torch

from shoal import autograd
from shoal_labs.autograd.tape import TapeEntry, Variable, fresh_name, grad, gradient_tape, reset_tape

A, B = torch.tensor([1.0, -2.0, 0.5]), torch.tensor([3.0, 0.25, -1.5])


@pytest.fixture(autouse=True)
def empty_tape():
    reset_tape()
    yield
    reset_tape()


def test_gradients_are_those_of_the_engine():
    def loss(a, b):
        return ((a + b) * b * a).sum()

    found = grad(loss(Variable.constant(A, name="a"), Variable.constant(B, name="b")), list(named("a", "b")))
    a, b = autograd.Variable(A), autograd.Variable(B)
    expected = autograd.grad(loss(a, b), [a, b])
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.value, theirs.value)


def named(*names):
    from shoal_labs.autograd.solution import tape

    return (tape.named[name] for name in names)


def test_a_chain_rule_of_ones_own_reads_the_tape_by_names():
    a, b = Variable.constant(A, name="a"), Variable.constant(B, name="b")
    loss = (a * b).sum(name="loss")
    assert loss.gradient_tape is gradient_tape
    assert [(entry.inputs, entry.outputs) for entry in gradient_tape] == [
        (["a", "b"], ["v0"]),
        (["v0"], ["loss"]),
    ]
    (upstream,) = gradient_tape[1].propagate([Variable(torch.ones(()))])
    da, db = gradient_tape[0].propagate([upstream])
    assert (repr(da), repr(db)) == (repr(B), repr(A))


def test_an_operation_of_ones_own_is_differentiated():
    a = Variable(A, name="a")
    r = Variable(-A)
    gradient_tape.append(TapeEntry(["a"], [r.name], lambda g: [g[0] * Variable(torch.full((3,), -1.0))]))
    (da,) = grad(r.sum(), [a])
    assert da.value.tolist() == [-1.0, -1.0, -1.0]


def test_what_the_loss_does_not_depend_on_has_no_gradient():
    a, b = Variable(A, name="a"), Variable(B, name="b")
    b * b
    da, db = grad(a.sum(), [a, b])
    assert da.value.tolist() == [1.0, 1.0, 1.0]
    assert db is None


def test_names_are_counted_and_a_given_one_is_left_out():
    Variable(A, name="v1")
    assert [Variable(A).name, Variable(A).name, fresh_name()] == ["v0", "v2", "v3"]
    reset_tape()
    assert Variable(A).name == "v0"


def test_a_number_is_repeated_with_sizes_or_a_list():
    a = Variable(torch.tensor(2.0))
    assert a.expand(2, 3).value.shape == a.expand([2, 3]).value.shape == (2, 3)


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (
            lambda a, old: a * Variable(torch.ones(1), name="one"),
            "a \\* one: shapes \\(3,\\) and \\(1,\\) differ",
        ),
        (lambda a, old: a + 2.0, "a \\+ 2.0: make it a variable"),
        (lambda a, old: grad(a, [a]), "grad needs a number, but a has shape \\(3,\\)"),
        (lambda a, old: a.expand(3), "expand repeats a number, but a has shape"),
        (lambda a, old: Variable(B, name="a"), "there is a variable 'a' already"),
        (lambda a, old: a * old, "got 'old', made before reset_tape"),
    ],
)
def test_what_would_be_silently_wrong_is_an_error(work, message):
    old = Variable(A, name="old")
    reset_tape()
    with pytest.raises((TypeError, ValueError), match=message):
        work(Variable(A, name="a"), old)
