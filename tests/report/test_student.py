"""Intervals of means: against tables of Student's distribution, and how often they hold the true mean."""

import random

import pytest

from shoal.report.paired import LEVEL, STUDENT
from shoal.report.student import interval_of, student_t


@pytest.mark.parametrize(
    ("degrees", "expected"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (120, 1.9799)]
)
def test_the_quantile_is_the_tables(degrees, expected):
    assert student_t(0.95, degrees) == pytest.approx(expected, abs=5e-5)


def test_at_another_level_it_is_the_table_of_paired_rounds():
    assert [student_t(LEVEL, degrees) for degrees in range(1, 21)] == pytest.approx(STUDENT, rel=2e-4)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_nineteen_of_twenty_intervals_hold_the_true_mean(count):
    draw = random.Random(count)
    held = sum(interval_of([draw.gauss(0, 1) for _ in range(count)]).holds_zero for _ in range(4000))
    assert held / 4000 == pytest.approx(0.95, abs=0.015)


def test_numbers_that_do_not_scatter_decide_nothing():
    assert interval_of([3.0]).half is None
    assert interval_of([3.0]).holds_zero
    assert interval_of([3.0, 3.0]).half == 0
    assert interval_of([3.0, 3.0]).holds_zero
    assert not interval_of([3.0, 3.1, 2.9]).holds_zero
