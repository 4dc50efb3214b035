"""The figures of a comparison, and whether their captions say what they show."""

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from made_runs import write_run

from shoal.compare.comparison import KINDS, compare
from shoal.compare.run_figures import (
    LOOKS,
    MOST_CURVES,
    RUN_COLOURS,
    captions,
    loss_figure,
    time_figure,
    turn_dashes,
)
from shoal.report.svg import COLOURS
from shoal.report.words import page_words
from shoal_labs.page.bars import time_parts
from shoal_labs.words import load_words

EN = page_words("en", "shoal.compare")
pytestmark = pytest.mark.usefixtures("svg_alone")


def made(folder, *ranks, losses=None):
    """A comparison of runs with these numbers of workers."""
    losses = losses or [2.0] * len(ranks)
    return compare(
        [
            write_run(
                folder / f"run{number}",
                f"--strategy ddp --workers {count} --threads 1" if count > 1 else "--threads 1",
                ranks=((9.0, 0.5, 0.0),) * count,
                loss=loss,
            )
            for number, (count, loss) in enumerate(zip(ranks, losses, strict=True))
        ]
    )


def texts(drawing):
    return re.findall(r"<text[^>]*>([^<]*)</text>", drawing.wide_svg)


@pytest.mark.parametrize(
    ("ranks", "bars", "key"),
    [
        ((1,), ["run0"], "one_time_caption"),
        ((1, 1), ["run0", "run1"], "one_time_caption"),
        ((1, 2), ["run0", "run1  rank 0", "run1  rank 1"], "time_caption"),
        ((1, 24), ["run0", "run1"], "mean_time_caption"),
    ],
)
def test_the_caption_says_what_a_bar_is(tmp_path, ranks, bars, key):
    comparison = made(tmp_path, *ranks)
    shown = [text for text in texts(time_figure(comparison, EN)) if text.startswith("run")]
    assert shown == bars
    assert captions(comparison, EN)["time"] == EN(f"figure.{key}")


@pytest.mark.parametrize("encode_ms", [0.0, 1.0])
def test_the_figure_names_the_kinds_of_time_that_some_worker_has(tmp_path, encode_ms):
    run = write_run(tmp_path / "run", "--threads 1", ranks=((8.0, 0.5, 0.0),), encode_ms=encode_ms)
    shown = texts(time_figure(compare([run]), EN))
    assert "compute" in shown
    assert ("encode" in shown) == (encode_ms > 0)


def test_the_picture_of_the_readme_is_a_drawing_for_light_and_dark_readers(tmp_path):
    run = write_run(tmp_path / "mine", "--threads 1", ranks=((9.0, 0.5, 0.0),))
    drawn = runpy.run_path(str(Path(__file__).parents[2] / "tools/picture.py"))["picture"]([run], "zh")
    root = ElementTree.fromstring(drawn)
    assert "mine" in {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    light, dark = (re.findall(pattern, drawn) for pattern in (r"var\((--figure-\w+),", r"(--figure-\w+): #"))
    assert set(light) == set(dark)


def test_a_few_runs_share_a_panel_and_have_colours_of_their_own(tmp_path):
    comparison = made(tmp_path, *[1] * MOST_CURVES)
    assert [text for text in texts(loss_figure(comparison, EN)) if text.startswith("by ")] == [
        "by step",
        "by time",
    ]
    assert len(set(RUN_COLOURS)) >= MOST_CURVES
    assert COLOURS["grey"] not in RUN_COLOURS
    assert captions(comparison, EN)["loss"] == EN("figure.loss_caption")


def test_many_runs_have_panels_which_those_that_look_the_same_share(tmp_path):
    losses = [2.0] * MOST_CURVES + [3.0, 4.0]
    comparison = made(tmp_path, *[1] * len(losses), losses=losses)
    shown = " ".join(text for text in texts(loss_figure(comparison, EN)) if text.startswith("run"))
    assert shown == "run0, run1, run2, run3, run4, run5 run6 run7"
    caption = captions(comparison, EN)["loss"]
    assert "time" not in caption
    assert "run0 in every panel" in caption


def test_coinciding_curves_take_turns_so_that_each_is_visible_and_all_cover_the_line():
    count = 8
    positions = np.arange(0.25, 200, 0.5)
    visible = []
    for turn in range(count):
        offset, (on, off) = turn_dashes(turn, count)
        visible.append((positions + offset) % (on + off) < on)
    assert (np.sum(visible, axis=0) == 1).all()
    assert min(np.sum(visible, axis=1)) > 0
    assert turn_dashes(0, 1) == "-"


def test_the_parts_of_a_step_have_the_order_and_the_colours_of_the_labs():
    words = load_words("shoal_labs.lab3", "en")
    labs = [(COLOURS[part.colour], part.hatch) for part in time_parts(words)]
    assert [LOOKS[kind] for kind in KINDS[:3]] == labs
    assert list(LOOKS) == list(KINDS)
