"""The autograd lab with a student's tape."""

from reports import assert_whole, rows, text_of
from student_folders import report_of, written_by_student

TASKS = ("mul", "add", "sum", "expand", "grad")
NOT_ADDED = """
    dL_d[L.name] = Variable(torch.ones((), dtype=L.value.dtype))
    for entry in reversed(gradient_tape):
        if any(output in dL_d for output in entry.outputs):
            parts = entry.propagate([dL_d[output] for output in entry.outputs])
            dL_d.update(zip(entry.inputs, parts, strict=True))
    """


def report(folder, out, lang="en"):
    outcome, words = report_of(folder, "autograd", "tape.py", out, lang=lang, tasks=TASKS)
    assert_whole(outcome.folder, words)
    return outcome, {row["claim"]: row["verdict"] for row in rows(outcome.folder, "findings")}


def test_a_right_tape_has_torchs_gradients(tmp_path):
    outcome, found = report(written_by_student(tmp_path / "in", "autograd"), tmp_path / "out")
    for claim in ("own_gradient_first", "own_gradient_second", "own_equal"):
        assert found[claim] == "holds"
    assert "def operator_mul" in text_of(outcome.folder)


def test_gradients_that_are_not_added_are_found(tmp_path):
    folder = written_by_student(tmp_path / "in", "autograd", grad=NOT_ADDED)
    _, found = report(folder, tmp_path / "out", lang="zh")
    assert (found["own_gradient_first"], found["own_equal"]) == ("fails", "fails")
