"""Curves drawn without matplotlib."""

from xml.etree import ElementTree

import numpy as np
import pytest

from shoal.report.curve_svg import drawings_of
from shoal.report.curves import Line, Panel, Style


def panel(log_y, count=2):
    x = np.arange(1.0, 101.0)
    lines = [Line(Style(f"<{number}>", "blue"), x, 1 / x, raw=1.1 / x) for number in range(count)]
    return Panel("", "step", "loss", lines, log_x=False, log_y=log_y)


@pytest.mark.parametrize("log_y", [True, False])
def test_both_drawings_are_xml_as_wide_as_their_pages_with_every_curve_inside(log_y):
    for svg, width in zip(drawings_of(panel(log_y)), (787, 346), strict=True):
        root = ElementTree.fromstring(svg)
        _, _, wide, high = map(float, root.get("viewBox").split())
        assert abs(wide - width) < 2
        curves = [line.get("points").split() for line in root.iter("polyline")]
        assert [len(points) for points in curves] == [100] * 4
        places = [tuple(map(float, point.split(","))) for points in curves for point in points]
        assert all(0 <= x <= wide and 0 <= y <= high for x, y in places)
        assert [text.text for text in root.iter("text")].count("<1>") == 1


def test_one_line_needs_no_legend():
    one, _ = drawings_of(panel(log_y=True, count=1))
    two, _ = drawings_of(panel(log_y=True, count=2))
    assert ("&lt;0&gt;" in one, "&lt;0&gt;" in two) == (False, True)


def test_a_curve_of_one_point_and_equal_values_is_drawn():
    line = Line(Style("a", "blue"), np.array([0.0]), np.array([2.0]))
    for svg in drawings_of(Panel("", "step", "loss", [line], log_x=False, log_y=False)):
        assert "nan" not in svg
