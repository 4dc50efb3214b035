"""The curves of a student's code beside those of the same training done right."""

import math

from shoal_labs.student.figures import figures, lines_of
from shoal_labs.student.part import StudentMeasured, StudentPart, StudentRun
from shoal_labs.words import load_words

WORDS = load_words("shoal_labs.lab2", "en", "shoal_labs.student")


def test_the_dashed_line_is_above_the_solid_ones_that_would_hide_it():
    runs = tuple(StudentRun([2.0, loss]) for loss in (1.0, 1.1))
    parts = {name: StudentPart(name, name, runs, runs, [64, 128]) for name in ("allreduce", "reduce")}
    lines = lines_of(StudentMeasured(None, parts, ()), WORDS)
    assert [line.style.label for line in lines] == ["allreduce", "reduce", "Done right"]
    assert lines[-1].style.dash == "dashed"


def test_a_curve_ends_before_the_first_loss_that_is_not_a_number():
    right = (StudentRun([2.0, 1.0]),)
    parts = {
        "allreduce": StudentPart(
            "allreduce", "broken at once", (StudentRun([math.nan, 1.0]),), right, [64, 128]
        ),
        "reduce": StudentPart("reduce", "broken later", (StudentRun([2.0, math.inf]),), right, [64, 128]),
    }
    lines = lines_of(StudentMeasured(None, parts, ()), WORDS)
    assert {line.style.label: len(line.y) for line in lines} == {"broken later": 1, "Done right": 2}
    del parts["reduce"]
    assert figures(StudentMeasured(None, parts, ())) == {}
