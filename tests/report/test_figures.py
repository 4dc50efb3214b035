import io

import matplotlib.image
import numpy as np
import pytest

from shoal.report.figures import Line, Mark, Panel, Style, _y_limits, draw

STYLE = Style("gd", "blue")
X = np.array([0.0, 1.0, 10.0, 100.0])
Y = np.array([2.0, 1.0, 0.5, 0.1])


def panel(**options):
    return Panel(
        "per step", "steps", "loss (nats)", [Line(STYLE, X, Y, low=Y / 2, high=Y * 2, raw=Y * 50)], **options
    )


@pytest.fixture(scope="module")
def drawing():
    marks = [Mark(STYLE, 10.0, None, "x"), Mark(STYLE, 1.0, 1.0, "o")]
    return draw([panel(), panel(log_x=False, marks=marks)], width_in=4.0, height_in=2.0)


def test_both_forms_are_what_they_say(drawing):
    picture = matplotlib.image.imread(io.BytesIO(drawing.png), format="png")
    assert picture.shape[:2] == (400, 800)
    assert picture[..., :3].min() < 0.5  # something is drawn
    assert drawing.pdf.startswith(b"%PDF-")


def test_the_pdf_repeats_bit_by_bit():
    assert (
        draw([panel()], width_in=3.0, height_in=2.0).pdf == draw([panel()], width_in=3.0, height_in=2.0).pdf
    )


def test_single_noisy_points_do_not_stretch_the_scale():
    low, high = _y_limits([panel()])
    assert low < Y.min() / 2
    assert Y.max() * 2 < high < 10


def test_panels_side_by_side_have_room_for_the_curves_of_all():
    other = Panel("", "", "", [Line(STYLE, X, Y * 100)])
    assert _y_limits([panel(), other])[1] > 200
    assert _y_limits([other, panel()]) == _y_limits([panel(), other])
