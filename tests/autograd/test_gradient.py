import sys
import weakref

import pytest
import torch

from shoal.autograd import Tape, Variable, backward, grad, ops
from shoal.errors import AutogradError


def scalar(number: float, name: str | None = None) -> Variable:
    return Variable(torch.tensor(number, dtype=torch.float64), name)


def test_the_worked_example_of_the_course():
    with Tape():
        a, b = Variable(torch.rand(4)), Variable(torch.rand(4))
        loss = ((a + b) * b).sum()
        da, db = grad(loss, [a, b])
    assert torch.equal(da.value, b.value)
    assert torch.allclose(db.value, a.value + 2 * b.value)


def test_a_value_used_many_times_accumulates():
    with Tape():
        a = scalar(2.0)
        assert grad(a + a + a * a + a, [a])[0].item() == 7.0


def test_gradients_of_gradients_to_the_fourth_order():
    with Tape():
        a = scalar(2.0)
        value = a * a * a * a
        found = []
        for _ in range(4):
            (value,) = grad(value, [a], record=True)
            found.append(value.item())
    assert found == [32.0, 48.0, 48.0, 24.0]


def test_a_first_order_step_does_not_grow_the_tape():
    with Tape() as tape:
        a = scalar(2.0)
        loss = a * a
        before = len(tape)
        grad(loss, [a])
        backward(loss, [a])
        assert len(tape) == before
        grad(loss, [a], record=True)
        assert len(tape) > before


def test_what_the_loss_does_not_depend_on_gets_zeros():
    with Tape():
        a, b = scalar(2.0), Variable(torch.ones(2, 3))
        assert torch.equal(grad(a * a, [b])[0].value, torch.zeros(2, 3))


def test_paths_that_do_not_matter_are_skipped():
    with Tape() as tape:
        a, b = scalar(2.0), scalar(3.0)
        side = b * b  # not on the way from a
        loss = a * side
        side_entry = tape.entries[0]
        side_entry.inputs[0].value.add_(1.0)  # would be noticed if its rule were asked
        assert grad(loss, [a])[0].item() == 9.0


def test_gradient_of_an_intermediate_and_of_the_loss_itself():
    with Tape():
        a = scalar(2.0)
        middle = a * a
        loss = middle * 3.0
        d_middle, d_a, d_loss = grad(loss, [middle, a, loss])
    assert (d_middle.item(), d_a.item(), d_loss.item()) == (3.0, 12.0, 1.0)


def test_seeds_and_several_losses():
    with Tape():
        a = Variable(torch.tensor([1.0, 2.0]))
        y = a * a
        assert grad(y, [a], torch.tensor([1.0, 10.0]))[0].value.tolist() == [2.0, 40.0]
        assert grad([y, a * 3.0], [a], [torch.ones(2), torch.ones(2)])[0].value.tolist() == [5.0, 7.0]


def test_gradients_share_no_memory():
    with Tape():
        a, b = Variable(torch.ones(2)), Variable(torch.ones(2))
        c, _ = grad((ops.relu(a + b)).sum(), [a, b])
        backward(ops.relu(a + b).sum(), [a, b])
    a.value.grad.zero_()
    assert b.value.grad.tolist() == [1.0, 1.0]
    assert c.value.is_contiguous()


def test_backward_sets_then_adds():
    a = Variable(torch.tensor([1.0, 2.0]))
    for expected in ([2.0, 4.0], [4.0, 8.0]):
        with Tape():
            backward((a * a).sum(), [a])
        assert a.value.grad.tolist() == expected


def test_a_released_tape_gives_the_same_gradients_and_keeps_nothing():
    a = Variable(torch.tensor([1.0, 2.0]))
    with Tape() as tape:
        middle = a * a
        held = weakref.ref(middle)
        loss = (ops.exp(middle)).sum()
        del middle
        backward(loss, [a], release=True)
        assert len(tape) == 0
        assert held() is None
        with pytest.raises(AutogradError, match="before its tape was reset"):
            backward(loss, [a])
    assert torch.allclose(a.value.grad, 2 * a.value * torch.exp(a.value**2))


def test_backward_leaves_an_unused_parameter_alone():
    a, b = scalar(1.0), scalar(1.0)
    with Tape():
        backward(a * a, [a, b])
    assert b.value.grad is None


def test_final_hooks_run_in_the_middle_of_backward_with_the_whole_gradient():
    seen = []
    first, second = scalar(2.0), scalar(3.0)
    undo = first.on_final(lambda value: seen.append(("first", value.grad.item(), second.value.grad.item())))
    second.on_final(lambda value: seen.append(("second", value.grad.item(), first.value.grad)))
    with Tape():
        backward(first * first * second * second, [first, second])
    assert seen == [("second", 24.0, None), ("first", 36.0, 24.0)]
    undo()
    with Tape():
        backward(first * second, [first, second])
    assert [name for name, *_ in seen] == ["second", "first", "second"]


def test_ten_thousand_operations_need_no_recursion():
    length = 10_000
    assert length > sys.getrecursionlimit()
    with Tape() as tape:
        a = scalar(1.0)
        value = a
        for _ in range(length):
            value = value * 1.0001
        (found,) = grad(value, [a])
        assert len(tape) == length
    assert found.item() == pytest.approx(1.0001**length)


def test_a_loss_that_is_no_scalar_needs_a_seed():
    with Tape():
        a = Variable(torch.ones(2, 3))
        with pytest.raises(
            AutogradError, match=r"a loss of shape \(2, 3\) is not a scalar.*at test_gradient.py:\d+: grad"
        ):
            grad(a * a, [a])


def test_a_seed_has_the_shape_of_the_loss():
    with Tape():
        a = Variable(torch.ones(2, 3))
        with pytest.raises(
            AutogradError, match=r"a seed of shape \(3,\) does not fit a loss of shape \(2, 3\)"
        ):
            grad(a * a, [a], torch.ones(3))


def test_wanted_of_another_tape():
    with Tape() as other:
        foreign = scalar(1.0) * 2.0
    with Tape(), pytest.raises(AutogradError, match="belongs to another tape than the loss"):
        grad(scalar(1.0) * 2.0, [foreign])
    assert len(other) == 1
    other.reset()
    with pytest.raises(AutogradError, match="recorded before its tape was reset"):
        grad(foreign, [foreign])


def test_backward_is_for_leaves():
    with Tape():
        middle = scalar(1.0) * 2.0
        with pytest.raises(
            AutogradError, match=r"gradients of leaves, but a parameter of shape \(\) was computed"
        ):
            backward(middle * 2.0, [middle])


def test_a_hook_on_a_computed_variable_is_refused():
    with Tape(), pytest.raises(AutogradError, match="on_final is for leaves"):
        (scalar(1.0) * 2.0).on_final(lambda value: None)
