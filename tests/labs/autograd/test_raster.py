import io

import numpy as np
from matplotlib.image import imread

from shoal.autograd.draw import COLOURS, svg
from shoal.autograd.examples import example
from shoal.labs.autograd.figures import LEGEND, graph_svg
from shoal.labs.autograd.raster import drawing
from shoal.labs.words import load_words


def colours(png):
    pixels = (imread(io.BytesIO(png), format="png")[..., :3] * 255).round().astype(int)
    return {f"#{r:02x}{g:02x}{b:02x}" for r, g, b in np.unique(pixels.reshape(-1, 3), axis=0)}


def test_the_picture_has_the_size_and_the_colours_of_the_svg():
    picture = drawing(svg(example("course")))
    height, width, _ = imread(io.BytesIO(picture.png), format="png").shape
    assert (width, height) == (920, 1268)
    shown = colours(picture.png)
    for fill, line in COLOURS.values():
        assert fill in shown
        assert line in shown
    assert picture.pdf.startswith(b"%PDF")


def test_the_legend_speaks_the_reports_language():
    words = load_words("shoal.labs.autograd", "zh")
    text = graph_svg(svg(example("course")), words)
    for english, key in LEGEND.items():
        assert f">{words(key)}<" in text
        assert f">{english}<" not in text
