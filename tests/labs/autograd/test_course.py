import torch

from shoal_labs.autograd.course import run_branch, run_course, worked


def test_the_printed_tape_is_the_courses_example():
    lines = []
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])
    da, db = worked(a, b, lines.append)
    assert lines[:2] == ["v0 = a + b", "v1 = v0 * b"]
    assert sum(line.startswith("dL/db = ") for line in lines) == 2  # b is used twice: the second is the sum
    assert da.tolist() == [3.0, 5.0]
    assert db.tolist() == [7.0, 12.0]


def test_the_example_is_checked_compiled_and_drawn():
    found = run_course(seed=3)
    assert found.error < 1e-6
    assert found.slope_error < 1e-6
    assert found.operations_compiled < found.operations_written
    assert "out=" in found.source
    assert "∂L/∂b" in found.svg
    assert not torch.equal(found.a, run_course(seed=4).a)


def test_a_branch_on_data_works_on_the_tape_and_is_refused_by_the_compiler():
    found = run_branch()
    assert found.dynamic_works
    assert "if float(x.sum()) > 0" in found.refusal  # the line is shown
