"""The autograd lab with a student's tape."""

import pytest
from reports import assert_whole, findings_in, rows, text_of
from student_folders import report_of, written_by_student

TASKS = ("mul", "add", "sum", "expand", "grad")
NOT_ADDED = """
    dL_d[L.name] = Variable(torch.ones((), dtype=L.value.dtype))
    for entry in reversed(gradient_tape):
        if any(output in dL_d for output in entry.outputs):
            parts = entry.propagate([dL_d[output] for output in entry.outputs])
            dL_d.update(zip(entry.inputs, parts, strict=True))
    """


TOO_LARGE = NOT_ADDED.replace("torch.ones((), ", "torch.full((), 1e30, ")


def report(folder, out, lang="en"):
    outcome, words = report_of(folder, "autograd", "tape.py", out, lang=lang, tasks=TASKS)
    assert_whole(outcome.folder, words)
    return outcome, {row["claim"]: row["verdict"] for row in findings_in(outcome.folder)}


def test_a_right_tape_has_torchs_gradients(tmp_path):
    outcome, found = report(written_by_student(tmp_path / "in", "autograd"), tmp_path / "out")
    for claim in ("own_gradient_shape", "own_gradient_first", "own_gradient_second", "own_equal"):
        assert found[claim] == "holds"
    assert "def operator_mul" in text_of(outcome.folder)


@pytest.mark.parametrize("grad", [NOT_ADDED, TOO_LARGE], ids=["not_added", "diverges"])
def test_wrong_gradients_are_found(tmp_path, grad):
    folder = written_by_student(tmp_path / "in", "autograd", grad=grad)
    _, found = report(folder, tmp_path / "out", lang="zh")
    assert (found["own_gradient_first"], found["own_equal"]) == ("fails", "fails")


def test_a_broadcast_gradient_that_is_not_reduced_is_reported_by_its_shape(tmp_path):
    body = """
    r = Variable(self.value.expand(shape))
    print(f"{r.name} = {self.name}.expand({shape})")
    gradient_tape.append(TapeEntry([self.name], [r.name], lambda dL_doutputs: [dL_doutputs[0]]))
    return r
    """
    folder = written_by_student(tmp_path / "in", "autograd", expand=body)
    outcome, found = report(folder, tmp_path / "out")
    assert found["own_gradient_shape"] == "fails"
    assert not {"own_gradient_first", "own_equal"} & set(found)  # nothing was compared
    assert "w and b: (32,), (32,)" in text_of(outcome.folder)
    assert not rows(outcome.folder, "runs")
