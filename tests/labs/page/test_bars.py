import pytest
from matplotlib.figure import Figure

from shoal.report.findings import Measured
from shoal_labs.page.bars import (
    GAP,
    Bar,
    BarPanel,
    Part,
    RatioPanel,
    draw_bars,
    draw_panel,
    draw_ratios,
    measured_bar,
)

PARTS = [Part("waiting", "orange", "...."), Part("moving", "vermilion", "////")]


def test_a_bar_is_as_long_as_the_whole_and_divided_like_its_parts():
    bar = measured_bar(
        "ring", [Measured(1.0, 0, "none", 1), Measured(3.0, 0, "none", 1)], Measured(8, 2, "steps", 9)
    )
    assert list(bar.parts) == [2.0, 6.0]
    assert bar.spread == 2


def test_a_bar_of_nothing_is_empty():
    nothing = Measured(0.0, 0.0, "none", 1)
    assert list(measured_bar("", [nothing, nothing], nothing).parts) == [0.0, 0.0]


def test_panels_with_gaps_are_drawn_in_both_forms():
    bars = [Bar("a", [1.0, 2.0], 0.5), GAP, Bar("b", [2.0, 0.0])]
    drawing = draw_bars([BarPanel("one", "ms", bars), BarPanel("two", "ms", bars)], PARTS)
    assert drawing.png.startswith(b"\x89PNG")
    assert drawing.pdf.startswith(b"%PDF")


def test_a_badly_disturbed_bar_does_not_make_the_others_short():
    def end(spread):
        axis = Figure().add_subplot()
        draw_panel(axis, BarPanel("", "ms", [Bar("a", [4.0, 6.0], spread), Bar("b", [3.0, 3.0], 1.0)]), PARTS)
        return axis.get_xlim()[1]

    assert end(900.0) == 20
    assert 12 <= end(2.0) < 20


def test_as_many_times_as_fast_and_as_slow_are_equally_far_from_the_line():
    axis = Figure().add_subplot()
    draw_ratios(axis, RatioPanel("", "×", {"to one core": [1.4, None, 1 / 1.4]}))
    place = axis.transAxes.inverted().transform(axis.transData.transform([[1 / 1.4, 0], [1, 0], [1.4, 0]]))
    assert place[1, 0] - place[0, 0] == pytest.approx(place[2, 0] - place[1, 0])
    assert place[2, 0] - place[1, 0] > 0.2
    assert "1.4" in [text.get_text() for text in axis.get_xticklabels()]
