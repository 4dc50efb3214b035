"""The tables of a report on a student's code, and the rule of its analysis."""

import math

import pytest

from shoal_labs.page.page import Page
from shoal_labs.page.pictures import Pictures
from shoal_labs.student.document import end_table, fact_table
from shoal_labs.student.part import StudentMeasured, StudentPart, StudentRun
from shoal_labs.words import load_words


def page_in(lang):
    return Page(load_words("shoal_labs.lab2", lang, "shoal_labs.student"), Pictures({}))


@pytest.mark.parametrize("last", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_named(last):
    page = page_in("en")
    runs = tuple(StudentRun([2.0, loss]) for loss in (1.0, last))
    right = tuple(StudentRun([2.0, 1.0]) for _ in runs)
    parts = {"allreduce": StudentPart("allreduce", "Your average", runs, right, [64, 128])}
    (row,) = end_table(StudentMeasured(None, parts, ()), page).rows
    assert list(row) == ["Your average", "not finite", "1.0000"]


def test_only_a_table_with_differences_says_what_they_are_relative_to():
    def caption(**cells):
        parts = {"part": StudentPart("part", "Your part", cells=cells)}
        return fact_table(StudentMeasured(None, parts, ()), page_in("en")).caption

    assert caption(difference="0").endswith("; differences are relative to the largest value")
    assert caption(coverage="100.0") == "What was measured of your code"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_analysis_names_the_rule_of_paired_comparisons(lang):
    assert "99.9 %" in page_in(lang)("analysis.intro")
