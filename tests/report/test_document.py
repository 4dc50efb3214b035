import pytest

from shoal.report.document import Table, stretches


def test_only_complete_marks_are_marks():
    assert list(stretches("2 ** 3 and a ` b")) == [("2 ** 3 and a ` b", "")]
    assert list(stretches("`a` **b**")) == [("a", "code"), (" ", ""), ("b", "strong")]


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="a row of 1 cells in a table of 2 columns"):
        Table("", ["a", "b"], [["only one"]])
