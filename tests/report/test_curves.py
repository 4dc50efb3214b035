import io
import re
from dataclasses import replace

import matplotlib.image
import numpy as np
import pytest

from shoal.report.canvas import (
    COLUMN_IN,
    LEGEND_ROW_IN,
    ON_FULL_SHADE,
    PAGE_IN,
    PHONE_IN,
    TEXT_PT,
    axes_of,
    heat_map,
    painted,
)
from shoal.report.curves import (
    COLUMN_HEIGHT_IN,
    Line,
    Mark,
    Panel,
    Style,
    _y_limits,
    coinciding,
    column_pdf,
    draw,
    draw_grid,
)

STYLE = Style("gd", "blue")
X = np.array([0.0, 1.0, 10.0, 100.0])
Y = np.array([2.0, 1.0, 0.5, 0.1])
LINEAR = {"log_x": False, "log_y": False}
"""For most tests: the many ticks of logarithmic axes take long to draw."""


def panel(**options):
    return Panel(
        "per step", "steps", "loss (nats)", [Line(STYLE, X, Y, low=Y / 2, high=Y * 2, raw=Y * 50)], **options
    )


@pytest.fixture(scope="module")
def drawing():
    marks = [Mark(STYLE, 10.0, None, "x"), Mark(STYLE, 1.0, 1.0, "o")]
    return draw([panel(), panel(log_x=False, marks=marks)], width_in=4.0, height_in=2.0)


def test_all_forms_are_what_they_say(drawing):
    picture = matplotlib.image.imread(io.BytesIO(drawing.png), format="png")
    assert picture.shape[:2] == (round(200 * (2.0 + LEGEND_ROW_IN)), 800)
    assert picture[..., :3].min() < 0.5  # something is drawn
    assert drawing.pdf.startswith(b"%PDF-")


@pytest.mark.usefixtures("svg_alone")
def test_names_are_shown_as_they_are_written():
    names = {
        r"a$\frac$": r"a$\frac$",
        "\x1b[2J": r"\x1b[2J",
        "\udcff": r"\udcff",
        "<script>": "&lt;script&gt;",
        "a\u202eb": r"a\u202eb",
    }
    lines = [Line(Style(name, "blue"), X, Y) for name in names]
    svg = draw([Panel(f"title {' '.join(names)}", "x", "y", lines, **LINEAR)], height_in=2.0).wide_svg
    assert f">title {' '.join(names.values())}</text>" in svg
    assert all(f">{shown}</text>" in svg for shown in names.values())
    assert not re.search(r"[\x00-\x08\x0e-\x1f]|<script", svg)


def test_the_drawing_for_a_phone_has_its_panels_below_each_other_in_letters_of_the_same_size(drawing):
    (_, _, width, height), (_, _, phone_width, phone_height) = map(
        view_box, (drawing.wide_svg, drawing.narrow_svg)
    )
    assert (width, phone_width) == pytest.approx((72 * 4.0, 72 * PHONE_IN))
    assert phone_height > 1.8 * height
    for svg in (drawing.wide_svg, drawing.narrow_svg):
        assert f"font-size: {TEXT_PT}px" in svg
        assert svg.count(">per step</text>") == 2


def view_box(svg):
    return [float(number) for number in re.search(r'viewBox="([^"]*)"', svg)[1].split()]


@pytest.mark.usefixtures("svg_alone")
def test_many_panels_take_several_rows_of_the_page():
    svg = draw([panel(**LINEAR) for _ in range(4)], height_in=2.0).wide_svg
    assert view_box(svg)[2] == pytest.approx(72 * PAGE_IN)
    assert view_box(svg)[3] > 72 * 4


@pytest.mark.usefixtures("svg_alone")
@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        (1, ("right sampler", "wrong: one worker's range", "wrong: a seed per rank", "random sampling")),
        (2, ("正确的采样器", "错误：只取一个节点的长度", "错误：每个 rank 一个种子", "随机采样")),
    ],
)
def test_the_legend_of_one_column_of_panels_is_inside_the_drawing(rows, labels):
    colours = ("blue", "vermilion", "green", "orange")
    lines = [Line(Style(*each), X, Y) for each in zip(labels, colours, strict=True)]
    drawing = draw_grid([[Panel("2 workers", "epoch", "loss", lines, **LINEAR)]] * rows)
    for svg in (drawing.wide_svg, drawing.narrow_svg):
        _, _, width, height = view_box(svg)
        for label in labels:
            style, x, y = re.search(
                rf'<text style="([^"]*)" x="([\d.]+)" y="([\d.]+)"[^>]*>{label}<', svg
            ).groups()
            assert "text-anchor" not in style or "start" in style
            letters = sum(2 if letter > "\u2e80" else 1 for letter in label)
            assert float(x) + 0.45 * TEXT_PT * letters < width
            assert float(y) + 0.2 * TEXT_PT < height


def test_a_drawing_has_no_colour_that_the_dark_theme_cannot_change(drawing):
    unthemed = re.sub(r"var\(--figure-[a-z]+, #\w+\)|#f[0-9a-f]{8}-", "", drawing.wide_svg)
    assert re.findall(r"#[0-9a-f]{6}", unthemed) == []
    assert "var(--figure-blue, #0072b2)" in drawing.wide_svg


@pytest.mark.usefixtures("svg_alone")
def test_a_heat_map_goes_from_the_page_to_the_full_colour():
    parts = np.array([[0.0, 0.5], [1.0, 0.1]])

    def paint(figure, columns):
        heat_map(axes_of(figure, 1, columns)[0], parts, np.array([[0, 5], [10, 1]]))

    svg = painted(paint, lambda *_: 2.0).wide_svg
    assert f"fill: {ON_FULL_SHADE}" in svg.split(">10</text>")[0][-250:]
    assert "var(--figure-ink" in svg.split(">5</text>")[0][-250:]


def test_the_pdf_repeats_bit_by_bit():
    one, other = (draw([panel(**LINEAR)], width_in=3.0, height_in=2.0).pdf for _ in range(2))
    assert one == other


def test_a_figure_of_a_paper_is_as_wide_as_a_column_and_repeats_bit_by_bit():
    ticks = panel(log_y=False, most_ticks=5, widens=False)
    one, other = (column_pdf(ticks) for _ in range(2))
    assert one == other
    width, height = map(float, re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+)", one).groups())
    assert (width, height) == pytest.approx((72 * COLUMN_IN, 72 * (COLUMN_HEIGHT_IN + LEGEND_ROW_IN)))


def test_single_noisy_points_do_not_stretch_the_scale():
    low, high = _y_limits([panel()])
    assert low < Y.min() / 2
    assert Y.max() * 2 < high < 10


def test_panels_side_by_side_have_room_for_the_curves_of_all():
    other = Panel("", "", "", [Line(STYLE, X, Y * 100)])
    assert _y_limits([panel(), other])[1] > 200
    assert _y_limits([other, panel()]) == _y_limits([panel(), other])


def test_curves_that_the_eye_cannot_distinguish_are_one_group():
    falling = np.array([2.0, 1.0, 0.5])
    groups = coinciding([falling, 1.2 * falling, falling * 1.002, falling[:2], falling])
    assert groups == [[0, 2, 4], [1], [3]]


@pytest.mark.usefixtures("svg_alone")
def test_a_curve_below_one_that_coincides_with_it_is_wider():
    lines = [Line(Style("sum", "blue"), X, Y), Line(Style("mean", "green", "dashed"), X, Y)]
    alone = [lines[0], Line(Style("mean", "green", "dashed"), X, 2 * Y)]
    width, width_alone = (
        float(re.search(r"--figure-blue, #0072b2\); stroke-width: ([\d.]+)", svg)[1])
        for svg in (draw([Panel("", "", "", each, **LINEAR)]).wide_svg for each in (lines, alone))
    )
    assert width > width_alone


@pytest.mark.usefixtures("svg_alone")
def test_one_below_the_other_every_panel_has_the_title_of_its_column():
    row = [replace(panel(**LINEAR), title=title) for title in ("alike", "unlike")]
    drawing = draw_grid([row, [replace(each, title="") for each in row]])
    assert [drawing.wide_svg.count(f">{title}</text>") for title in ("alike", "unlike")] == [1, 1]
    assert [drawing.narrow_svg.count(f">{title}</text>") for title in ("alike", "unlike")] == [2, 2]
