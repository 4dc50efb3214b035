"""The table of losses where training with a student's code did not end with a number."""

import math

import pytest

from shoal.labs.page.page import Page
from shoal.labs.page.pictures import Pictures
from shoal.labs.student.document import end_table
from shoal.labs.student.part import StudentMeasured, StudentPart, StudentRun
from shoal.labs.words import load_words


@pytest.mark.parametrize("last", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_named(last):
    page = Page(load_words("shoal.labs.lab2", "en", "shoal.labs.student"), Pictures({}))
    runs = tuple(StudentRun([2.0, loss]) for loss in (1.0, last))
    right = tuple(StudentRun([2.0, 1.0]) for _ in runs)
    parts = {"allreduce": StudentPart("allreduce", "Your average", runs, right, [64, 128])}
    (row,) = end_table(StudentMeasured(None, parts, ()), page).rows
    assert list(row) == ["Your average", "not finite", "1.0000 ± 0.0000"]
