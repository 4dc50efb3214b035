"""The tables of the page about a student's code."""

import math
from types import SimpleNamespace

import pytest

from shoal_labs.student.content import content
from shoal_labs.student.part import QUICK, StudentMeasured, StudentPart, StudentPlan, StudentRun
from shoal_labs.student.spec import by_claim
from shoal_labs.words import load_words

WORDS = load_words("shoal_labs.lab2", "en", "shoal_labs.student")
PLAN = StudentPlan(SimpleNamespace(number="2", sources={"dist_utils.py": ""}), QUICK)


def made(part):
    return content(StudentMeasured(PLAN, {part.name: part}, ()), by_claim([]))


@pytest.mark.parametrize("last", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_named(last):
    runs = tuple(StudentRun([2.0, loss]) for loss in (1.0, last))
    right = tuple(StudentRun([2.0, 1.0]) for _ in runs)
    page = made(StudentPart("allreduce", "Your average", runs, right, [64, 128]))
    assert page.tables["ends"].shown(0, WORDS) == ["Your average", "not finite", "1.0000"]


def test_only_a_table_with_differences_says_what_they_are_relative_to():
    assert made(StudentPart("part", "Your part", cells={"difference": 0.0})).values["relative"]
    assert not made(StudentPart("part", "Your part", cells={"coverage": 100.0})).values["relative"]


def test_columns_that_no_part_has_are_left_out():
    page = made(StudentPart("part", "Your part", cells={"coverage": 100.0}))
    assert list(page.tables["facts"].columns) == ["part", "coverage"]
    assert page.each["trained"] == page.each["own_cost"] == []
