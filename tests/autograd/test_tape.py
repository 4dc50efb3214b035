import threading

import pytest
import torch

from shoal.autograd import Tape, Variable, current_tape, no_record, ops
from shoal.autograd.gradient import grad
from shoal.errors import AutogradError


def leaf(*numbers: float, name: str | None = None) -> Variable:
    return Variable(torch.tensor(numbers), name=name)


def test_trace_writes_the_worked_example_line_by_line():
    lines: list[str] = []
    with Tape(trace=True, write=lines.append):
        a, b = leaf(1.0, 2.0, name="a"), leaf(3.0, 4.0, name="b")
        t = a + b
        loss = (t * b).sum()
        grad(loss, [a, b])
    assert lines == [
        "v0 = a + b",
        "v1 = v0 * b",
        "v2 = sum(v1, dims=(0,), keep=False)",
        "dL/dv2 = v3",
        "v4 = expand(v3, shape=(2,))",
        "dL/dv1 = v4",
        "v5 = v4 * b",
        "dL/dv0 = v5",
        "v6 = v4 * v0",
        "dL/db = v6",
        "dL/da = v5",
        "v7 = v6 + v5",
        "dL/db = v7",
    ]


def test_a_trace_shows_options_that_a_sign_would_hide():
    lines: list[str] = []
    with Tape(trace=True, write=lines.append):
        a = Variable(torch.ones(2, 2), name="a")
        ops.matmul(a, a)
        ops.matmul(a, a, transpose_b=True)
    assert lines == ["v0 = a @ a", "v1 = matmul(a, a, transpose_b=True)"]


def test_tracing_a_gradient_does_not_grow_the_tape():
    with Tape(trace=True, write=lambda line: None) as tape:
        a = leaf(1.0)
        loss = (a * a).sum()
        before = len(tape)
        assert grad(loss, [a])[0].value.tolist() == [2.0]
        assert len(tape) == before


def test_nothing_requires_grad():
    with Tape() as tape:
        a = leaf(1.0, 2.0)
        loss = (ops.exp(a) * a).sum()
        grad(loss, [a], record=True)
        values = [
            v.value
            for entry in tape.entries
            for v in (*entry.inputs, *entry.outputs)
            if isinstance(v, Variable)
        ]
        assert values
        assert not any(value.requires_grad for value in values)


def test_no_record_keeps_nothing_and_is_undone_after_an_error():
    with Tape() as tape:
        with pytest.raises(AutogradError), no_record():
            leaf(1.0, 2.0) * leaf(1.0, 2.0, 3.0)
        assert len(tape) == 0
        assert len([leaf(1.0) * 2.0]) == len(tape)


def test_reset_empties_the_tape_and_its_numbering():
    lines: list[str] = []
    with Tape(trace=True, write=lines.append) as tape:
        for _ in range(2):
            leaf(1.0, name="a") * 2.0
            tape.reset()
            assert len(tape) == 0
    assert lines == ["v0 = a * 2.0"] * 2


def test_a_tape_counts_the_memory_it_keeps():
    with Tape() as tape:
        a = Variable(torch.ones(10, 10))
        b = a * 2.0  # 400 bytes
        ops.reshape(b, shape=(100,))  # a view
        ops.reshape(a, shape=(100,))  # a view of what was there before
        ops.exp(b)  # 400 bytes
        assert tape.num_bytes == 800


def test_threads_have_tapes_of_their_own():
    found = []
    thread = threading.Thread(target=lambda: found.append(current_tape()))
    thread.start()
    thread.join()
    assert found[0] is not current_tape()


def test_values_are_freed_with_their_tape_without_the_garbage_collector():
    import gc
    import weakref

    gc.disable()
    try:
        tape = Tape()
        with tape:
            kept = leaf(1.0) * 2.0
            dies = weakref.ref(tape.entries[0].outputs[0])
            loss = kept.sum()
        del kept
        assert dies() is not None
        del tape
        assert dies() is None
        assert loss.item() == 2.0
    finally:
        gc.enable()


def test_a_sharing_tape_reads_a_repeated_expression_instead_of_computing_it():
    def expression(a: Variable) -> Variable:
        return (ops.exp(a) * ops.exp(a) + ops.exp(a)).sum()

    a = leaf(0.5, 1.5)
    with Tape() as plain:
        want = expression(a)
        (want_slope,) = grad(want, [a])
    with Tape(share=True) as sharing:
        have = expression(a)
        (have_slope,) = grad(have, [a])
    assert len(sharing) == len(plain) - 2
    assert torch.equal(have.value, want.value)
    assert torch.allclose(have_slope.value, want_slope.value)


def test_a_sharing_tape_notices_that_an_input_was_changed():
    with Tape(share=True):
        a = leaf(0.5)
        ops.exp(a)
        a.value.add_(1.0)
        with pytest.raises(AutogradError, match="changed in place"):
            ops.exp(a)


class TestBadInput:
    def test_shapes_that_do_not_broadcast(self):
        with (
            Tape(),
            pytest.raises(
                AutogradError, match=r"add cannot take shapes \(2,\) and \(3,\), at test_tape.py:\d+: leaf"
            ),
        ):
            leaf(1.0, 2.0) + leaf(1.0, 2.0, 3.0)

    def test_inner_sizes_of_a_product(self):
        with Tape(), pytest.raises(AutogradError, match=r"matmul cannot take shapes \(2, 3\) and \(2, 3\)"):
            Variable(torch.ones(2, 3)) @ Variable(torch.ones(2, 3))

    def test_mixed_dtypes(self):
        with (
            Tape(),
            pytest.raises(
                AutogradError,
                match=r"mul mixes dtypes: float32 and float64, of shapes \(1,\) and \(1,\), at test_tape",
            ),
        ):
            leaf(1.0) * Variable(torch.ones(1, dtype=torch.float64))
        with Tape(), pytest.raises(AutogradError, match="mixes dtypes"):
            Variable(torch.ones(1, dtype=torch.float64)) * torch.ones(1)

    def test_mixed_devices(self):
        with Tape(), pytest.raises(AutogradError, match=r"where mixes devices: cpu and cpu and meta"):
            ops.where(
                torch.ones(2, 2) > 0, Variable(torch.ones(2, 2)), Variable(torch.ones(2, 2, device="meta"))
            )

    def test_integers(self):
        with pytest.raises(AutogradError, match=r"labels \(2,\) holds int64"):
            Variable(torch.tensor([1, 2]), name="labels")

    def test_a_tensor_that_torch_records(self):
        with pytest.raises(AutogradError, match=r"w \(2,\) requires grad"):
            Variable(torch.ones(2, requires_grad=True), name="w")

    def test_a_variable_of_another_tape(self):
        with Tape() as tape:
            foreign = leaf(1.0) * 2.0
        with (
            Tape(),
            pytest.raises(
                AutogradError, match=r"add received a variable of shape \(1,\) that belongs to another tape"
            ),
        ):
            leaf(1.0) + foreign
        assert len(tape) == 1

    def test_a_variable_from_before_the_reset(self):
        with Tape() as tape:
            stale = leaf(1.0) * 2.0
            tape.reset()
            with pytest.raises(AutogradError, match="recorded before its tape was reset"):
                stale + 1.0

    def test_a_value_changed_in_place(self):
        with Tape():
            a = leaf(1.0, 2.0)
            loss = (a * a).sum()
            a.value.add_(1.0)
            with pytest.raises(
                AutogradError,
                match=r"mul recorded a value of shape \(2,\).*changed.*\(1 times\), at test_tape.py:\d+: loss",
            ):
                grad(loss, [a])
