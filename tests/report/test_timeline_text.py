"""The timeline of a run as rows of letters."""

import pytest
from made_steps import span, step, two_ranks, write_steps

from shoal.report.plain_tables import width
from shoal.report.timeline import read_timeline
from shoal.report.timeline_text import as_lines, shown_rows
from shoal.report.words import page_words


def drawn(folder, lang="en", columns=60, paint=lambda colour, words: words):
    return as_lines(read_timeline(folder), page_words(lang), columns, paint, str)


def test_each_worker_has_a_row_and_the_path_its_ranks(tmp_path):
    _, first, second, path, *_ = drawn(two_ranks(tmp_path / "run"))
    assert first == "  rank 0  dddd################............=====###   10.0 ms"
    assert second == "  rank 1  dddd############################=====###   10.0 ms"
    assert path == "  path    1111111111111111111111111111111100000000"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_row_is_wider_than_the_terminal(lang, tmp_path):
    lines = drawn(two_ranks(tmp_path / "run"), lang, 80)
    assert max(width(line) for line in lines[1:4]) <= 80


def test_colours_are_the_painter_s(tmp_path):
    lines = drawn(two_ranks(tmp_path / "run"), paint=lambda colour, words: f"<{colour}:{len(words)}>")
    assert lines[2].startswith("  rank 1  <cyan:4><blue:28><magenta:5><blue:3>")


def test_of_many_workers_those_on_the_path_have_rows(tmp_path):
    ranks = [[step(0, [span("forward", "compute", 0, 1 + (rank == 7))], 0.002)] for rank in range(9)]
    folder = write_steps(tmp_path / "run", *ranks)
    assert [row.rank for row in shown_rows(read_timeline(folder).median, 2)] == [0, 7]
