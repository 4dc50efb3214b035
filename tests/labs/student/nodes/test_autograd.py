"""What is measured of a tape: numbers of its own, also where they are wrong beyond comparison."""

import contextlib
import io
import math
import sys

import pytest
from student_folders import written_by_student

from shoal_labs.student.nodes.autograd import POINTS, fit

NOT_SUMMED = """
    r = Variable(self.value.expand(shape))
    gradient_tape.append(TapeEntry([self.name], [r.name], lambda dL_doutputs: [dL_doutputs[0]]))
    return r
    """
UPHILL = """
    r = Variable(self.value * rhs.value)

    def propagate(dL_doutputs):
        minus = Variable(torch.full_like(self.value, -1e9))
        return [dL_doutputs[0] * rhs * minus, dL_doutputs[0] * self * minus]

    gradient_tape.append(TapeEntry([self.name, rhs.name], [r.name], propagate))
    return r
    """


@pytest.fixture
def measure(tmp_path, monkeypatch):
    def measured(steps, **bodies):
        folder = written_by_student(tmp_path / "in", "autograd", **bodies)
        monkeypatch.syspath_prepend(next(folder.rglob("tape.py")).parent)
        monkeypatch.delitem(sys.modules, "tape", raising=False)
        with contextlib.redirect_stdout(io.StringIO()):
            return fit(0, steps)

    yield measured
    sys.modules.pop("tape", None)


def test_a_right_tape_fits_the_same_line(measure):
    found = measure(4)
    assert found["shapes"] == [[], []]
    assert max(found["first"], found["second"], found["difference"]) < 1e-6
    assert found["losses"] == pytest.approx(found["right"])


def test_a_broadcast_gradient_that_is_not_reduced_has_a_shape_and_no_invented_numbers(measure):
    found = measure(4, expand=NOT_SUMMED)
    assert found["shapes"] == [[POINTS], [POINTS]]
    assert found["first"] == math.inf
    assert (found["losses"], found["right"], found["difference"]) == ([], [], None)


def test_a_gradient_that_is_not_found_moves_nothing(measure):
    found = measure(2, grad="pass")
    assert found["first"] == found["second"] == 1.0  # of the right gradient, all is missing
    assert found["losses"][0] == found["losses"][1]


def test_weights_that_are_no_numbers_any_more_are_infinitely_far(measure):
    assert measure(8, mul=UPHILL)["difference"] == math.inf
