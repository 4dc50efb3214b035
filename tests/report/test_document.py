import pytest

from shoal.report.document import Piece, Table, pieces


def test_only_complete_marks_are_marks():
    assert list(pieces("2 ** 3 and a ` b")) == [Piece("2 ** 3 and a ` b")]
    assert list(pieces("`a` **b**")) == [Piece("a", "code"), Piece(" "), Piece("b", "strong")]


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="a row of 1 cells in a table of 2 columns"):
        Table("", ["a", "b"], [["only one"]])
